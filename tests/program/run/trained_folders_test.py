"""Opens every kind of trained model, in every kind of folder, with every verb that uses one: each works, or is refused in
one sentence. The table of it stands in configs/models.md.

usage: trained_folders_test.py GPUTRAIN [--all | --write]
  --all    tries every cell of the table, not only some: each verb on each kind of model, and in each kind of folder both
           where it works and where it is refused
  --write  writes the table anew, to be read before it is committed
"""
import concurrent.futures
import json
import os
import random
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from small_kinds import KINDS, job, with_head, write_data  # noqa: E402
from warm_program import Program  # noqa: E402

PROGRAM = Program(sys.argv.pop(1))
run = PROGRAM.run
WRITES = "--write" in sys.argv and not sys.argv.remove("--write")
TRIES_ALL = WRITES or ("--all" in sys.argv and not sys.argv.remove("--all"))
PAGE = Path(__file__).resolve().parents[3] / "configs/models.md"
BEGIN, END = "<!-- made by tests/program/run/trained_folders_test.py -->\n", "<!-- end -->\n"
VERBS = ["predict", "embed", "generate", "eval", "eval --suite", "export --format hf", "export --format onnx",
         "export --format gguf", "export --format sentence-transformers", "export --format adapter"]
BRANCHED = ("language model", "language model, DPO", "classifier of texts (gpt)", "classifier of texts (bert)")  # that have adapters here


def train(folder, name, job):
    (folder / f"{name}.json").write_text(json.dumps(job))
    done = run("run", folder / f"{name}.json", "--output-dir", folder / name)
    if done.returncode != 0:
        raise AssertionError(f"{name}: {done.stderr}")


def command(verb, folder, job_file, model, out):
    reads_images = "images" in model or "pixels" in model
    masks = ["--masks", f"{out}.masks"] if "pixels" in model else []
    return {
        "predict": ["predict", folder, "DATA/images/dark/1.png" if reads_images else "DATA/in.txt", *masks],
        "embed": ["embed", folder, "DATA/in.txt", "--output", out],
        "generate": ["generate", folder, "--prompt", "red", "--max-new-tokens", "2"],
        "eval": ["eval", job_file, "--weights", folder],
        "eval --suite": ["eval", folder, "--suite", "DATA/suite.jsonl"],
    }.get(verb) or ["export", folder, out, *verb.split()[1:], *(["--merge"] if verb.endswith("hf") else [])]


def table_of(outcomes):
    """Outcomes of all cells, as the page tells them."""
    shown = ["eval JOB --weights" if verb == "eval" else verb.replace("--format ", "") for verb in VERBS]
    reasons, lines = [], ["| model | folder | " + " | ".join(f"`{verb}`" for verb in shown) + " |",
                          "|-" * (len(VERBS) + 2) + "|"]
    for kind in KINDS:
        folders = {}  # of equal rows
        for place in dict.fromkeys(place for of, place, _ in outcomes if of == kind):
            cells = []
            for verb in VERBS:
                reason = outcomes[kind, place, verb]
                if reason and reason not in reasons:
                    reasons.append(reason)
                cells.append(f"no ({reasons.index(reason) + 1})" if reason else "yes")
            folders.setdefault(" | ".join(cells), []).append(place)
        lines += [f"| {kind} | {', '.join(places)} | {cells} |" for cells, places in folders.items()]
    lines += [""] + [f"{i + 1}. {reason}" for i, reason in enumerate(reasons)]
    return "\n".join(lines) + "\n"


def told_by(table):
    """The inverse of table_of."""
    reasons = {f"no ({number})": reason for number, reason in re.findall(r"^(\d+)\. (.*)", table, re.M)}
    outcomes = {}
    for line in table.splitlines()[2:]:
        kind, places, *cells = line.strip("| ").split(" | ") if line.startswith("|") else ("", "")
        for place in places.split(", "):
            outcomes |= {(kind, place, verb): reasons.get(cell, "") for verb, cell in zip(VERBS, cells)}
    return outcomes


def some_of(told):
    """Cells with each kind of model and verb, and with each place, verb and outcome."""
    cells, seen = list(told), set()
    random.Random(1).shuffle(cells)
    for kind, place, verb in cells:
        shown = {(kind, verb), (place, verb, told[kind, place, verb])}
        if not shown <= seen:
            yield kind, place, verb
        seen |= shown


class Folders(unittest.TestCase):
    maxDiff = None

    def test_each_works_or_is_refused_in_one_sentence(self):
        with tempfile.TemporaryDirectory() as temporary:
            data = Path(temporary)
            write_data(data)
            page = PAGE.read_text()
            begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
            told = told_by(page[begin:end])
            cells = [(kind, place, verb) for kind in KINDS for place in self.places(data, kind) for verb in VERBS]
            outcomes = self.outcomes(data, cells if TRIES_ALL else list(some_of(told)))
        if WRITES:
            PAGE.write_text(page[:begin] + table_of(outcomes) + page[end:])
            return
        hint = f"write the table anew and read it: {sys.argv[0]} {PROGRAM.path} --write"
        if TRIES_ALL:
            self.assertEqual(page[begin:end], table_of(outcomes), hint)
        self.assertEqual(set(told), set(cells), hint)
        self.assertEqual({cell: told[cell] for cell in outcomes}, outcomes, hint)

    def test_an_adapter_is_read_with_its_own_tokenizer(self):
        with tempfile.TemporaryDirectory() as temporary:
            data, kind = Path(temporary), "language model"
            write_data(data)
            self.prepare(data, kind)
            (data / f"{kind} published/tokenizer.json").unlink()  # of the base
            words = ("--prompt", "red", "--max-new-tokens", "4", "--json")
            of_run, of_folder = (run("generate", data / f"{kind} {place}", *words) for place in ("adapted", "adapter"))
            self.assertEqual(of_folder.returncode, 0, of_folder.stderr)
            self.assertEqual(of_folder.stdout, of_run.stdout)

    def test_an_adapter_is_refused_on_another_base(self):
        with tempfile.TemporaryDirectory() as temporary:
            data, kind = Path(temporary), "language model"
            write_data(data)
            self.prepare(data, kind)
            train(data, "other", {**job(data, kind), "seed": 2})
            run("export", data / "other", data / "other published", "--format", "hf")
            shutil.copy(data / "other published/model.safetensors", data / f"{kind} published")
            adapted, words = data / f"{kind} adapted", ("--prompt", "red", "--max-new-tokens", "2")
            for refused in (("generate", adapted, *words), ("generate", adapted / "adapter", *words),
                            ("eval", f"{adapted}.json", "--output-dir", adapted),
                            ("export", adapted, data / "out", "--format", "onnx")):
                done = run(*refused)
                self.assertEqual(done.returncode, 3, refused)
                self.assertIn("holds other values than those that the adapter was trained on, in ", done.stderr)
            of_checkpoint = run("generate", adapted / "ckpt/step-00000002", *words)
            self.assertEqual(of_checkpoint.returncode, 0, of_checkpoint.stderr)

    def test_all_classes_of_a_model_count_and_known_ones_have_names(self):
        with tempfile.TemporaryDirectory() as temporary:
            data, kind = Path(temporary), "classifier of texts (bert)"
            write_data(data)
            wide = job(data, kind)
            wide["model"] = with_head(wide["model"], num_classes=4)
            train(data, "wide", wide)
            run("export", data / "wide", data / "wide published", "--format", "hf")
            names = json.loads((data / "wide published/config.json").read_text())["id2label"]
            self.assertEqual(names, {"0": "colour", "1": "size", "2": "LABEL_2", "3": "LABEL_3"})
            of_run, of_export = (json.loads(run("predict", data / folder, data / "in.txt", "--json").stdout.splitlines()[0])
                                 ["probabilities"] for folder in ("wide", "wide published"))
            self.assertEqual(list(of_run), ["colour", "size"])
            self.assertEqual(list(of_export), list(names.values()))
            for name, probability in of_run.items():
                self.assertAlmostEqual(probability, of_export[name], places=6)

    def test_a_reward_is_exported_without_a_problem_type(self):
        with tempfile.TemporaryDirectory() as temporary:
            data = Path(temporary)
            write_data(data)
            train(data, "reward", job(data, "reward model"))
            run("export", data / "reward", data / "published", "--format", "hf")
            self.assertNotIn("problem_type", json.loads((data / "published/config.json").read_text()))

    def test_heads_that_peft_names_and_the_model_lacks_are_left_out(self):
        with tempfile.TemporaryDirectory() as temporary:
            data, kind = Path(temporary), "classifier of texts (bert)"
            write_data(data)
            self.prepare(data, kind)
            adapted = job(data, kind)
            adapter = {"type": "lora", "rank": 2, "modules_to_save": ["classifier"]}
            adapted["model"] = {"type": "bert", "pretrained": str(data / f"{kind} published"), "adapter": adapter}
            train(data, "saved", adapted)
            run("export", data / "saved", data / "saved adapter", "--format", "adapter")
            config = data / "saved adapter/adapter_config.json"
            config.write_text(json.dumps({**json.loads(config.read_text()), "modules_to_save": ["classifier", "score"]}))
            of_run, of_folder = (run("predict", data / folder, data / "in.txt") for folder in ("saved", "saved adapter"))
            self.assertEqual(of_folder.returncode, 0, of_folder.stderr)
            self.assertEqual(of_folder.stdout, of_run.stdout)
            adapter["modules_to_save"].append("score")  # of the job's own, each must be there
            (data / "wrong.json").write_text(json.dumps(adapted))
            wrong = run("validate", data / "wrong.json").returncode or run("run", data / "wrong.json", "--dry-run").returncode
            self.assertEqual(wrong, 2)

    def test_an_export_does_not_overwrite_what_it_reads(self):
        with tempfile.TemporaryDirectory() as temporary:
            data, kind = Path(temporary), "language model"
            write_data(data)
            self.prepare(data, kind)
            base = data / f"{kind} published"
            before = (base / "model.safetensors").read_bytes()
            for folder, out in ((data / kind, data / kind), (base, base), (data / f"{kind} adapted", base)):
                done = run("export", folder, out, "--format", "hf", "--merge")
                self.assertEqual((done.returncode, "overwrite the model that it reads" in done.stderr), (2, True), done.stderr)
            self.assertEqual((base / "model.safetensors").read_bytes(), before)

    def outcomes(self, data, cells):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda kind: self.prepare(data, kind), KINDS))
            return dict(zip(cells, pool.map(lambda cell: self.outcome(data, *cell), cells)))

    def prepare(self, data, kind):
        train(data, kind, job(data, kind))
        if kind in BRANCHED:
            run("export", data / kind, data / f"{kind} published", "--format", "hf")
            base = data / f"{kind} published"
            adapted = job(data, kind)
            adapted["model"] = {"type": adapted["model"]["type"], "pretrained": str(base), "adapter": {"type": "lora", "rank": 2}}
            train(data, f"{kind} adapted", adapted)
            run("export", data / f"{kind} adapted", data / f"{kind} adapter", "--format", "adapter")

    def places(self, data, kind):
        places = {"run": data / kind, "checkpoint": data / kind / "ckpt/step-00000001"}
        if kind in BRANCHED:
            places["published folder"] = data / f"{kind} published"
            places["run with an adapter"] = data / f"{kind} adapted"
            places["adapter's folder"] = data / f"{kind} adapter"
        return places

    def outcome(self, data, kind, place, verb):
        """Empty: it worked."""
        folder = self.places(data, kind)[place]
        out = data / re.sub(r"\W", "_", f"{kind} {place} {verb}")
        job_file = data / f"{kind}{' adapted' if 'adapter' in place else ''}.json"
        words = [str(word).replace("DATA", str(data)) for word in command(verb, folder, job_file, kind, out)]
        done = run(*words)
        where = f"{' '.join(words)}: {done.returncode}\n{done.stderr}"
        if done.returncode == 0:
            return ""
        errors = re.findall(r"^error: (.*)", done.stderr, re.M)
        self.assertEqual((done.returncode, len(errors)), (2, 1), where)
        self.assertFalse(out.exists(), where)
        reason = errors[0].replace(str(folder) + ": ", "").replace(str(data) + "/", "")
        if "this model gives" in reason:
            self.assertIn(f"this model gives {KINDS[kind][3]}", reason, where)
        return reason.replace(f"this model gives {KINDS[kind][3]}", "this model gives something else").replace(
            verb.removeprefix("export --format ") + " is", "this is")


if __name__ == "__main__":
    unittest.main()
