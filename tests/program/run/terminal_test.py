"""Looks at runs on a terminal: no line is wider than it, columns stand still, and what takes long has a live line.

usage: terminal_test.py GPUTRAIN
"""
import fcntl
import json
import os
import pty
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
from small_kinds import job, write_data  # noqa: E402

PROGRAM = str(Path(sys.argv.pop(1)).resolve())
MAIN_METRICS = {"classifier of images": "top1", "language model": "loss", "classifier of texts (bert)": "accuracy",
                "classifier of pixels": "mIoU", "language model, DPO": "accuracy", "vectors of texts": "recall_at_1"}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Shown:
    """What a program has written to a terminal: pieces of text, each with the time at which it came."""

    def __init__(self, pieces, code):
        self.pieces, self.code = pieces, code
        self.raw = "".join(text for _, text in pieces)

    def parts(self):
        """Texts that stood on a line, also those that were redrawn."""
        return [COLOUR.sub("", part) for part in re.split(r"[\r\n]|\x1b\[2K", self.raw) if part]

    def lines(self):
        """Lines that stay."""
        lines = [COLOUR.sub("", re.split(r"\r|\x1b\[2K", line.rstrip("\r"))[-1]) for line in self.raw.split("\n")]
        return [line for line in lines if line]

    def lines_of(self, label):
        return [line for line in self.lines() if line.startswith(label.ljust(7) + " ")]


def at_terminal(words, folder, columns, **environment):
    """Runs the program on a pseudo-terminal."""
    own, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    settings = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", **environment}
    program = subprocess.Popen([PROGRAM, *map(str, words)], cwd=folder, stdin=its, stdout=its, stderr=its, env=settings)
    os.close(its)
    pieces, rest = [], b""
    while True:
        try:
            read = os.read(own, 65536)
        except OSError:  # the program has ended
            break
        if not read:
            break
        rest += read
        text = rest.decode(errors="ignore")
        pieces.append((time.monotonic(), text))
        rest = b""
    os.close(own)
    return Shown(pieces, program.wait())


class Terminal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.own = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.own.name)
        write_data(cls.folder)
        cls.jobs = {kind: cls.write_job(kind) for kind in MAIN_METRICS}

    @classmethod
    def tearDownClass(cls):
        cls.own.cleanup()

    @classmethod
    def write_job(cls, kind, name=None, **changes):
        spec = job(cls.folder, kind)
        spec["train"]["max_steps"] = 40
        spec.update({"eval": {"interval": 10}, "log": {"interval": 4}, "checkpoint": {"interval": 20}, **changes})
        name = name or re.sub(r"\W+", "_", kind)
        (cls.folder / f"{name}.json").write_text(json.dumps(spec))
        return f"{name}.json"

    def run_job(self, kind, columns, run, **environment):
        run += "_" + self.jobs[kind].removesuffix(".json")
        shown = at_terminal(["run", self.jobs[kind], "--output-dir", run], self.folder, columns, **environment)
        self.assertEqual(shown.code, 0, shown.raw)
        return shown

    def test_has_no_line_that_is_wider_than_the_terminal_and_keeps_columns_in_place(self):
        narrow_and_wide = [(kind, columns) for kind in ("language model", "classifier of texts (bert)") for columns in (60, 120, 200)]
        for kind, columns in [(kind, 80) for kind in MAIN_METRICS] + narrow_and_wide:
            with self.subTest(kind=kind, columns=columns):
                shown = self.run_job(kind, columns, f"a{columns}")
                for part in shown.parts():
                    self.assertLessEqual(len(part), columns, part)
                self.check_columns_of_steps(shown.lines_of("step"))
                self.check_columns_of_evaluations(shown.lines_of("eval"), MAIN_METRICS[kind])

    def check_columns_of_steps(self, lines):
        self.assertGreaterEqual(len(lines), 10, lines)
        places = set()
        for line in lines[:-1]:
            found = re.search(r"%( )loss (?:.*?)( )(?:tok|samples)/s( )eta ", line)
            self.assertTrue(found, line)
            places.add((found.start(1), found.start(2), found.start(3)))
        self.assertEqual(len(places), 1, lines)

    def check_columns_of_evaluations(self, lines, main):
        self.assertEqual(len(lines), 4, lines)
        places = set()
        for line in lines:
            found = re.match(r"eval +[0-9]+ val/(\S+) .*?([0-9.]+(?:ms|s))(?: +best \(was|$)", line)
            self.assertTrue(found, line)
            self.assertEqual(found[1], main, line)
            places.add((found.start(1), found.start(2)))
        self.assertEqual(len(places), 1, lines)

    def test_shows_all_columns_where_there_is_room(self):
        shown = self.run_job("language model", 200, "c")
        piped = subprocess.run([PROGRAM, "run", self.jobs["language model"], "--output-dir", "d"], cwd=self.folder,
                               capture_output=True, text=True)
        strip = lambda lines: [re.sub(r"[0-9.]+", "0", line) for line in lines if re.match("step|eval", line)]
        names = lambda lines: [re.findall("[a-z/%]+", line) for line in lines][:-1]
        self.assertEqual(names(shown.lines_of("step")[:1]), names([piped.stdout.split("\nstep ")[1].split("\n")[0]][:1]))
        for name in ("loss", "gnorm", "lr", "tok/s", "eta"):
            self.assertIn(f" {name}", strip(piped.stdout.split("\n"))[0])
            self.assertIn(f" {name}", strip(shown.lines())[0])

    def test_has_colours_only_where_they_are_wanted(self):
        coloured, plain = self.run_job("language model", 80, "e"), self.run_job("language model", 80, "f", NO_COLOR="1")
        self.assertTrue(COLOUR.search(coloured.raw))
        self.assertFalse(COLOUR.search(plain.raw))
        self.assertIn("━", coloured.raw)
        self.assertNotIn("━", self.run_job("language model", 80, "g", LC_ALL="C").raw)
        piped = subprocess.run([PROGRAM, "run", self.jobs["language model"], "--output-dir", "h"], cwd=self.folder,
                               capture_output=True, text=True)
        self.assertNotIn("\x1b", piped.stdout + piped.stderr)

    def test_shows_an_evaluation_while_it_goes_on(self):
        (self.folder / "long.txt").write_text("red house blue far old new small big green 0123456789 " * 16000)
        spec = self.write_job("language model, characters", "long", eval={"batch_size": 1})
        words = ["run", spec, "--output-dir", "long", "--set", "data.train.path=long.txt", "--set", "data.val.split=90%",
                 "--set", "train.max_steps=5"]
        shown = at_terminal(words, self.folder, 80)
        self.assertEqual(shown.code, 0, shown.raw)
        live = [part for part in shown.parts() if re.match(r"eval    [━─]+ +[0-9]+% val data +[0-9.]+s ", part)]
        self.assertGreater(len(live), 1, shown.raw)
        shares = [int(re.search(r"([0-9]+)%", part)[1]) for part in live]
        self.assertEqual(shares, sorted(shares))
        self.assertLessEqual(max(map(len, shown.parts())), 80)

    def test_tells_steadily_how_long_the_run_takes(self):
        spec = self.write_job("language model", "even", log={"interval": 1000})
        words = ["run", spec, "--output-dir", "even", "--set", "train.max_steps=1500", "--set", "eval.interval=null"]
        shown = at_terminal(words, self.folder, 80)
        self.assertEqual(shown.code, 0, shown.raw)
        told = []  # share that is done, time, seconds that are left
        for moment, text in shown.pieces:
            for part in re.split(r"[\r\n]|\x1b\[2K", COLOUR.sub("", text)):
                found = re.match(r"step    [━─]+ +([0-9.]+)% .* eta ([0-9.]+)(ms|s)$", part)
                if found:
                    told.append((float(found[1]), moment, float(found[2]) / (1000 if found[3] == "ms" else 1)))
        self.assertGreater(len(told), 5, shown.raw)
        self.assertEqual([one[0] for one in told], sorted(one[0] for one in told))
        begin, end = told[0], told[-1]
        whole = (end[1] - begin[1]) / (end[0] - begin[0]) * 100
        wrong = [abs(left - whole * (1 - done / 100)) / whole for done, _, left in told if 10 <= done <= 90]
        self.assertLess(statistics.median(wrong), 0.15, f"{whole}: {told}")

    def test_names_commands_that_work(self):
        for kind in MAIN_METRICS:
            done = subprocess.run([PROGRAM, "run", self.jobs[kind], "--output-dir", f"run of a {kind}", "--set",
                                   "limits.price_per_hour=3600"], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"\ncost    [0-9.]+  3600 per hour\n")
            self.assertRegex(done.stdout, r"\nresult  val/" + ("miou" if "pixels" in kind else MAIN_METRICS[kind]) +
                             r" \S+ \(best \S+ at step [0-9]+\)")
            command = re.search(r"^next    (.*)$", done.stdout, re.M)
            self.assertTrue(command, done.stdout)
            used = subprocess.run(command[1], shell=True, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True)
            self.assertEqual(used.returncode, 0, f"{command[1]}\n{used.stderr}")

    def stopped_after(self, pattern, command, **how):
        """Starts a run, stops it once a line matches, and returns all its lines."""
        run = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True, **how)
        lines = []
        for line in run.stdout:
            if not any(re.search(pattern, before) for before in lines) and re.search(pattern, line):
                run.terminate()
            lines.append(line)
        run.stdout.close()
        self.assertEqual(run.wait(), 143, lines)
        return "".join(lines)

    def test_names_the_command_that_goes_on(self):
        words = ["run", self.jobs["language model"], "--output-dir", "j", "--set", "train.max_steps=100000"]
        said = self.stopped_after("^step    8/", [PROGRAM, *words])
        command, step = re.search(r"^next    (.*)  # goes on from step ([0-9,]+)$", said, re.M).groups()
        again = self.stopped_after("^step ", f"exec {command}", shell=True)
        self.assertIn(f"resume  step {step} from j/ckpt/", again)

    def test_has_no_torn_table_in_a_plan(self):
        model = {"type": "gpt", "config": {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "vocab_size": 512}}
        spec = {"schema": 1, "name": "a-language-model-with-a-long-name", "precision": "bf16", "model": model,
                "data": {"train": {"format": "synthetic", "vocab_size": 512, "samples": 4096}},
                "train": {"max_steps": 2, "global_batch_size": 2048}, "optimizer": {"type": "adamw", "lr": 1e-4}}
        (self.folder / "planned.json").write_text(json.dumps(spec))
        links = {"ranks": 2, "hosts": ["a", "a"],
                 "rows": [{"collective": "all_gather", "bytes": 8, "seconds": 5e-6, "busbw": 2e11}]}
        measured = "measured_on_two_gpus_of_one_host_with_nvlink.json"
        (self.folder / measured).write_text(json.dumps(links))
        splits = ["tensor=4", "context=2", "pipeline=2", "virtual_stages=2"]
        splits = [word for split in splits for word in ("--set", f"parallel.{split}")]
        rate = r"(rates | {6})  [a-z ]+ [0-9.]+ (TFLOP/s|GB/s|us)  (published|measured), \S[^%]*?(  [0-9]+ %, assumed)?"
        for more, rates in ((["--gpus", "h100"], 2), (["--world-size", "64", "--device-memory", "80GiB"], 7),
                            (["--world-size", "64", "--gpus", "h100", "--bench-comm", measured, *splits], 7),
                            (["--gpus", "h100,v100=0.5,rtx6000-ada=0.8"], 0)):
            with self.subTest(more=more):
                shown = at_terminal(["plan", "planned.json", *more], self.folder, 80)
                self.assertEqual(shown.code, 0, shown.raw)
                for line in shown.lines():
                    self.assertLessEqual(len(line), 80, shown.raw)
                self.assertEqual(sum(bool(re.fullmatch(rate, line)) for line in shown.lines()), rates, shown.raw)
                self.assertRegex(shown.raw, r"\n +split .*\n1  .*\n2  |\nv100 +14.9 GiB +\? +no bf16 units; try \S+ \S+\r\n")
                settings = shown.raw.split("for the job:\r\n\r\n")[1].replace("\r", "")
                (self.folder / "pasted.yaml").write_text("include: planned.json\n" + settings)
                pasted = subprocess.run([PROGRAM, "validate", "pasted.yaml"], cwd=self.folder, capture_output=True,
                                        text=True)
                self.assertEqual(pasted.returncode, 0, pasted.stderr)

    def test_shows_a_run_from_outside(self):
        run = subprocess.Popen([PROGRAM, "run", self.jobs["classifier of pixels"], "--output-dir", "k", "--set",
                                "train.max_steps=1000000", "--set", "log.interval=1"], cwd=self.folder,
                               stdout=subprocess.PIPE, text=True)
        try:
            for line in run.stdout:
                if line.startswith("eval    20 "):
                    break
            for _ in range(50):  # until the phases of steps have been compared
                shown = at_terminal(["top", "k", "--once"], self.folder, 80)
                if "waits for data" in shown.raw:
                    break
            self.assertEqual(shown.code, 0, shown.raw)
            self.assertLessEqual(max(map(len, shown.parts())), 80, shown.raw)
            for expected in (r"^[━─]{60} [0-9.]+ %  left ", r"  waits for data [0-9]+\.[0-9]{2} %$",
                             r"^val/miou [0-9.]+% at step [0-9,]+  best ", r"^ *[0-9.]+ │.*█", r"step 1 .* [0-9]+$"):
                self.assertTrue(any(re.search(expected, line) for line in shown.lines()), (expected, shown.lines()))
        finally:
            run.kill()
            run.stdout.close()
            run.wait()

    def test_stays_with_a_sweep_between_two_trials(self):
        sweep = self.folder / "swept"
        sweep.mkdir()
        trials = [{"trial": number, "state": state, "settings": {"optimizer.lr": str(number)}, "value": value}
                  for number, state, value in ((1, "done", 50.0), (2, "waiting", None))]
        (sweep / "sweep.json").write_text(json.dumps({"metric": "val/top1", "trials": trials}))
        holder = subprocess.Popen(["sleep", "3"])  # stands for the sweep, which has locked its folder
        threading.Thread(target=holder.wait).start()
        started = Path(f"/proc/{holder.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        (sweep / "lock").write_text(f"process {holder.pid} on host x since now\n{holder.pid} {started} {boot}\n")
        shown = at_terminal(["top", "swept"], self.folder, 80)
        self.assertEqual(shown.code, 0, shown.raw)
        self.assertIsNotNone(holder.poll(), "top has ended, but the sweep goes on: " + shown.raw)
        self.assertIn("1 of 2 trials over", shown.raw)


if __name__ == "__main__":
    unittest.main()
