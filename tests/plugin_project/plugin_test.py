"""The plug-in of this folder, as its author makes it: by the commands of CONTRIBUTING.md, with other folders. Then the
plug-ins that must be refused.

usage: plugin_test.py BUILD_FOLDER
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD = Path(sys.argv.pop(1)).resolve()
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SHORT = ("--set", "log.interval=1", "--set", "eval.interval=3", "--set", "checkpoint.interval=3")


def must_run(command, cwd):
    done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, cwd=cwd)
    if done.returncode != 0:
        raise AssertionError(f"{command}:\n{done.stdout}\n{done.stderr}")


def commands_of_contributing(prefix, project):
    """Installing gputrain, copying the plug-in, building it; the last command, which runs the job, is left out."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("a plug-in\n")[1]
    text = section.split("```")[1]
    for word, place in (("build/release", BUILD), ("my_plugin", project), ("PREFIX", prefix)):
        text = re.sub(rf"\b{word}\b", str(place), text)
    lines = text.strip().splitlines()
    assert len(lines) == 4 and lines[3].startswith(f"{prefix}/bin/gputrain run job.yaml"), lines
    return lines[:3]


class Plugins(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.holder.name)
        cls.prefix = cls.folder / "prefix"
        cls.program = cls.prefix / "bin/gputrain"
        cls.project = cls.folder / "project"
        install, copy, build = commands_of_contributing(cls.prefix, cls.project)
        must_run("\n".join((install, copy, build)), cwd=ROOT)
        must_run(build, cwd=cls.project / "more")
        cls.mixer = cls.project / "build/libtiny_mixer.so"
        cls.more = cls.project / "more/build"

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def gputrain(self, *words, expected=0, cwd=None, **environment):
        done = subprocess.run([str(word) for word in (self.program, *words)], capture_output=True, text=True,
                              cwd=cwd or self.project, env=ENVIRONMENT | environment)
        self.assertEqual(done.returncode, expected, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def run_of(self, name, *words):
        return self.gputrain("run", "job.yaml", "--output-dir", self.folder / name, *SHORT, *words)

    def losses_of(self, name):
        lines = map(json.loads, (self.folder / name / "metrics.jsonl").read_text().splitlines())
        return [line["train/loss"] for line in lines if line["kind"] == "train"]

    def refusal(self, plugin, **environment):
        """What is said of a job with this plug-in: exit code 2, and nothing else is wrong with it."""
        text = self.gputrain("run", "job.yaml", "--output-dir", self.folder / "refused", "--set", f"plugins=[{plugin}]",
                             expected=2, **environment)
        self.assertIn("1 mistake", text)
        self.assertIn(f"plugins[0]: {plugin}: ", text)
        self.assertFalse((self.folder / "refused").exists())
        return text

    def altered(self, before, after):
        copy = self.folder / "altered.so"
        content = (self.more / "libentries.so").read_bytes()
        self.assertEqual(content.count(before), 1)
        copy.write_bytes(content.replace(before, after))
        return copy

    def test_trains_evaluates_and_resumes_bit_for_bit(self):
        page = self.run_of("whole", "--set", "train.max_steps=6")
        self.assertRegex(page, r"plugins +libtiny_mixer.so [0-9a-f]{12}: model 'tiny_mixer'")
        self.run_of("parts", "--set", "train.max_steps=3")
        self.run_of("parts", "--set", "train.max_steps=6", "--accept")
        self.assertEqual(self.losses_of("parts"), self.losses_of("whole"))
        self.assertEqual(len(self.losses_of("whole")), 6)
        weights = [(self.folder / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
        self.assertEqual(weights[0][-1000:], weights[1][-1000:])
        with self.subTest("from another folder, by the recorded job alone"):
            self.assertIn("equal", self.gputrain("replay", self.folder / "whole", "--step", 5, cwd="/"))
            recorded = self.folder / "whole/job.resolved.yaml"
            self.assertIn(str(self.mixer.resolve()), recorded.read_text())
            self.assertIn("val/loss", self.gputrain("eval", recorded, "--json", cwd="/"))
        with self.subTest("nobody's code is loaded to compare settings"):
            text = self.gputrain("compare", self.folder / "whole", self.folder / "parts")
            self.assertNotIn("model.config", text)
            recorded.write_text(recorded.read_text().replace("depth: 2", "depth: 3").replace(str(self.mixer.resolve()), "/no.so"))
            text = self.gputrain("compare", self.folder / "whole", self.folder / "parts")
            self.assertRegex(text, r"model.config.depth +3 +2")
        with self.subTest("another build of the plug-in"):
            again = self.project / "again/libtiny_mixer.so"
            again.parent.mkdir()
            again.write_bytes(self.mixer.read_bytes() + b"\n")
            page = self.run_of("whole", "--set", "train.max_steps=7", "--accept", "--set", f"plugins=[{again}]")
            self.assertRegex(page, r"other versions \(plugin libtiny_mixer.so [0-9a-f]{12} -> [0-9a-f]{12}\)")

    def test_learns(self):
        self.run_of("learned", "--set", "train.max_steps=40", "--set", "eval.interval=40")
        losses = self.losses_of("learned")
        self.assertLess(losses[-1], losses[0] / 2)

    def test_every_rank_of_a_launch_loads_it(self):
        self.gputrain("launch", "--nproc-per-node", 2, "run", "job.yaml", "--output-dir", self.folder / "ranks", *SHORT,
                      "--set", "train.max_steps=3", "--set", "device=cpu")
        self.run_of("alone", "--set", "train.max_steps=3")
        for ours, theirs in zip(self.losses_of("ranks"), self.losses_of("alone"), strict=True):
            self.assertAlmostEqual(ours, theirs, places=4)

    def test_adds_entries_of_any_kind(self):
        page = self.gputrain(
            "run", "job.yaml", "--output-dir", self.folder / "more", *SHORT, "--set", "train.max_steps=4",
            "--set", f"plugins=[build/libtiny_mixer.so, {self.more}/libentries.so]", "--set", "data.image.size=null",
            "--set", "data.train={format: stripes, width: 1, samples: null, num_classes: null}",
            "--set", "data.val={format: stripes, samples: null}", "--set", "data.image.augment.invert=0.5",
            "--set", "lr_scheduler={type: halves}", "--set", "log.sinks=[jsonl, step_lines]")
        self.assertIn("half after two steps", page)
        self.assertIn("dataset 'stripes', lr_scheduler 'halves', augmentation 'invert', sink 'step_lines'", page)
        self.assertEqual((self.folder / "more/steps.txt").read_text(), "1 0.003\n2 0.003\n3 0.0015\n4 0.0015\n")

    def test_learns_samples_that_its_task_makes(self):
        texts = [f"{'so ' * before}yes{' no' * behind}" for before in range(4) for behind in range(4)]
        data = self.folder / "spans.jsonl"
        data.write_text("".join(json.dumps({"text": text, "answer": "yes"}) + "\n" for text in texts))
        source = f"{{path: {data}, format: jsonl}}"
        job = self.folder / "spans.yaml"
        job.write_text(f"""
plugins: [{self.more}/libanswer_span.so]
model: {{type: bert, config: {{head: classifier, n_layer: 1, n_head: 2, n_embd: 32, dropout: 0}}}}
task: {{type: answer_span}}
data: {{train: {source}, val: {source}, text: {{tokenizer: words, min_count: 1}}}}
train: {{max_steps: 60, global_batch_size: 16}}
optimizer: {{type: adamw, lr: 0.01}}
eval: {{interval: 60}}
log: {{interval: 1}}
""")
        run = self.folder / "spans"
        page = self.gputrain("run", job, "--output-dir", run)
        self.assertIn("16 texts of 1 file", page)
        self.assertIn("2 numbers each", page)
        losses = self.losses_of("spans")
        self.assertLess(losses[-1], losses[0] / 10)
        self.assertEqual(json.loads((run / "model.json").read_text())["gives"], "answer_span")
        told = self.gputrain("eval", run / "job.resolved.yaml", "--json")
        loss = float(re.search(r'"val/loss": *([-+.e0-9]+)', told)[1])
        (self.folder / "texts.jsonl").write_text(data.read_text())
        told = self.gputrain("predict", run, self.folder / "texts.jsonl", "--json").splitlines()
        spans = [json.loads(line)["numbers"] for line in told if line.startswith("{")]
        self.gputrain("export", run, self.folder / "spans_out", "--format", "hf")
        told = self.gputrain("predict", self.folder / "spans_out", self.folder / "texts.jsonl", "--json").splitlines()
        again = [json.loads(line)["numbers"] for line in told if line.startswith("{")]
        self.assertEqual(again, spans)
        truth = [(text.index("yes") / len(text), (text.index("yes") + 3) / len(text)) for text in texts]
        errors = [(guess - true) ** 2 for span, both in zip(spans, truth, strict=True)
                  for guess, true in zip(span, both, strict=True)]
        self.assertAlmostEqual(sum(errors) / len(errors), loss, places=5)
        with self.subTest("a record that its reader refuses"):
            data.write_text(data.read_text() + '{"text": "so", "answer": "yes"}\n')
            text = self.gputrain("run", job, "--output-dir", self.folder / "refused_spans", expected=3)
            self.assertIn("the answer is not in the text", text)
            self.assertIn("spans.jsonl:17", text)

    def test_verbs_show_entries_of_plugins_they_are_given(self):
        self.assertNotIn("tiny_mixer", self.gputrain("list", "models"))
        self.assertIn("tiny_mixer", self.gputrain("list", "models", "--plugin", self.mixer))
        self.assertIn("width inside the MLP over patches",
                      self.gputrain("describe", "tiny_mixer", "--plugin", self.mixer, "--plugin", self.mixer))
        self.assertIn("/no.so: no such file", self.gputrain("list", "--plugin", "/no.so", expected=2))
        schema = self.gputrain("schema", "--plugin", self.mixer, "--plugin", self.more / "libentries.so")
        for entry in ("tiny_mixer", "stripes", "halves", "invert", "step_lines"):
            self.assertIn(f'"{entry}"', schema)
        self.assertIn("token_hidden: 16", self.gputrain("config", "job.yaml"))

    def test_mistakes_in_a_job_with_plugins_are_told_at_once(self):
        text = self.gputrain("validate", "job.yaml", "--set", "seed=-1", "--set", "model.config.pach=3", expected=2)
        self.assertIn("2 mistakes", text)
        self.assertIn("did you mean 'patch'?", text)

    def test_stamp_of_another_gputrain_is_refused_before_any_code_runs(self):
        version = self.gputrain("--version").split()[1].encode()
        trace = self.folder / "trace"
        self.gputrain("list", "--plugin", self.more / "libentries.so", TRACE=str(trace))
        self.assertTrue(trace.exists())
        trace.unlink()
        for before, after, told in (
                (b"gputrain\t" + version + b"\n", b"gputrain\t" + b"9" * len(version) + b"\n",
                 f"gputrain {'9' * len(version)}, here {version.decode()}"),
                (b"LibTorch\t2.", b"LibTorch\t1.", "LibTorch 1."),
                (b"compiler\tGCC ", b"compiler\tICC ", "compiler ICC "),
                (b"C++ ABI\t1", b"C++ ABI\t7", "C++ ABI 7"),
                (b"CXX11_ABI\t1", b"CXX11_ABI\t0", "_GLIBCXX_USE_CXX11_ABI 0, here 1"),
                (b"headers of gputrain\t", b"headers_of_gputrain\t", "headers of gputrain none, here ")):
            with self.subTest(told):
                text = self.refusal(self.altered(before, after), TRACE=str(trace))
                self.assertIn("was built for another gputrain: " + told, text)
                self.assertIn(f"rebuild it against gputrain {version.decode()}", text)
        self.assertFalse(trace.exists())

    def test_what_is_no_plugin_is_refused(self):
        (self.folder / "text.so").write_text("int main() {}\n")
        whole = self.mixer.read_bytes()
        (self.folder / "half.so").write_bytes(whole[:len(whole) // 2])
        for plugin, told in ((self.folder / "missing.so", "no such file"),
                             (self.project, "is a folder, not a plug-in"),
                             (self.folder / "text.so", "is no shared library"),
                             (self.program, "not a plug-in of gputrain"),
                             (self.folder / "half.so", "has no section .gputrain_plugin"),
                             (self.more / "libno_stamp.so", "gputrain_plugin() of find_package(gputrain)"),
                             (self.more / "libNOTHING.so", "registers nothing")):
            with self.subTest(told):
                self.assertIn(told, self.refusal(plugin))

    def test_damaged_headers_are_refused(self):
        content = (self.more / "libentries.so").read_bytes()
        damaged = self.folder / "damaged.so"
        for field, (offset, size) in {"e_shoff": (40, 8), "e_shentsize": (58, 2), "e_shstrndx": (62, 2)}.items():
            with self.subTest(field):
                damaged.write_bytes(content[:offset] + b"\xff" * size + content[offset + size:])
                self.assertIn("has no section .gputrain_plugin", self.refusal(damaged))

    def test_missing_symbol_is_named(self):
        text = self.refusal(self.more / "libUNRESOLVED.so")
        self.assertIn("undefined symbol: gputrain::optim::nobody_has_this(long)", text)

    def test_name_that_is_taken_is_refused_with_both_places(self):
        text = self.refusal(self.more / "libTAKEN_NAME.so")
        self.assertRegex(text, r"'cosine' of \S*mistakes.cpp:\d+: it is registered twice, also in \S*cosine.cpp:\d+")
        copy = self.project / "build/libcopy.so"
        shutil.copy(self.mixer, copy)
        text = self.gputrain("validate", "job.yaml", "--set", f"plugins=[{self.mixer}, {copy}]", expected=2)
        self.assertIn("plugins[1]: ", text)
        self.assertRegex(text, r"also in \S*tiny_mixer.cpp:\d+ of libtiny_mixer.so")


if __name__ == "__main__":
    unittest.main()
