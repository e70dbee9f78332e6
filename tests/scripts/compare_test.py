"""Tests the comparison with PyTorch on the CPU with the real programs: compare_test.py GPUTRAIN [CLASS...]"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/bench"))
import compare  # noqa: E402
from compare import Comparison, GpuWatch, Run, summarize  # noqa: E402

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else ""


def run_compare(folder: str, *options: str) -> tuple[subprocess.CompletedProcess, dict]:
    output = pathlib.Path(folder) / "compare.json"
    command = [sys.executable, str(ROOT / "scripts/bench/compare.py"), "--output", str(output), "--binary", PROGRAM, *options]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return done, json.loads(output.read_text())


def turns_in(output: str) -> list[str]:
    return [line.split(": ")[1].split()[0] for line in output.splitlines() if " round " in line]


class Summary(unittest.TestCase):
    def test_ratios_are_medians_of_rounds_and_more_than_one_where_we_are_faster(self):
        eager = [Run([2.0, 4.0, 3.0], 1, 1, 300), Run([6.0], 1, 1, 300)]
        ours = [Run([1.5], 1, 1, 100), Run([2.0], 1, 1, 150)]
        entry = summarize({"unit": "images/s", "units": 30}, {"eager": eager, "gputrain": ours, "compile": [Run(error="no g++")]})
        self.assertEqual(entry["contenders"]["eager"]["rate"], 30 / 4.5)
        self.assertEqual(entry["gputrain_over"], {"eager": {"speed": 2.5, "memory": statistics.median([1 / 3, 1 / 2])}})
        self.assertEqual(entry["runs"]["compile"][0]["error"], "no g++")


    def test_clocks_and_power_are_those_of_a_busy_gpu(self):
        idle, first, last = "1980, 2619, 139.2, 57, 0\n", "1830, 2619, 426.0, 65, 100\n", "1800, 2619, 430.0, 66, 99\n"
        self.assertEqual(GpuWatch.medians(5 * idle + first + last)["power.draw"], 428)
        self.assertEqual(GpuWatch.medians(idle)["clocks.sm"], 1980)
        self.assertEqual(GpuWatch.medians("1980, 2619, [N/A], 57, [N/A]\n1980, 26"), {"clocks.sm": 1980, "clocks.mem": 2619, "temperature.gpu": 57})
        self.assertEqual(GpuWatch.medians(""), {})


class EarlierReport(unittest.TestCase):
    def taken_up(self, report: str) -> tuple[Comparison, bool]:
        """What a call takes up of an earlier report, and whether it was set aside."""
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "compare.json"
            output.write_text(report)
            arguments = argparse.Namespace(output=output, budget=1, steps=3, warmup=1, rounds=1, only=["gpt2"], contenders=["eager"],
                                           binary=None, **{"continue": True})
            comparison = Comparison(arguments)
            aside = pathlib.Path(folder) / "compare.json.before"
            return comparison, aside.exists() and aside.read_text() == report and not output.exists()

    def report(self, **changes) -> str:
        runs = {"eager": [vars(Run([2.0])), vars(Run(error="killed"))]}
        machine = compare.machine() | changes.pop("machine", {})
        return json.dumps({"machine": machine, "steps": 3, "warmup": 1, "results": [{"workload": "gpt2", "runs": runs}]} | changes)

    def test_is_taken_up_without_its_failures(self):
        comparison, aside = self.taken_up(self.report())
        self.assertEqual([run.step_seconds for run in comparison.runs["gpt2"]["eager"]], [[2.0]])
        self.assertFalse(aside)

    def test_is_set_aside_if_measured_otherwise(self):
        for report in (self.report(steps=4), self.report(machine={"gpu": "H100, 580.2"}), self.report()[:50]):
            comparison, aside = self.taken_up(report)
            self.assertEqual(comparison.runs["gpt2"]["eager"], [])
            self.assertTrue(aside)


class ComparisonTest(unittest.TestCase):
    def check(self, *contenders: str):
        with tempfile.TemporaryDirectory() as folder:
            done, report = run_compare(folder, "--only", "tiny-gpt-fp32", "--steps", "4", "--warmup", "2", "--contenders", *contenders)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(turns_in(done.stdout), [*contenders, *reversed(contenders)])
        entry = report["results"][0]
        for name, got in entry["contenders"].items():
            self.assertEqual([len(run["step_seconds"]) for run in entry["runs"][name]], [4, 4])
            self.assertAlmostEqual(got["first_loss"], 5.53, delta=0.1, msg=name)  # ln 250 and ln 256: untrained
            self.assertLess(got["last_loss"], got["first_loss"] + 0.05, name)
            self.assertGreater(got["peak_bytes"], 50 << 20)
        self.assertIn("gputrain is ", done.stdout)


class Compare(ComparisonTest):
    def test_measures_both_in_turns_on_equal_work(self):
        self.check("gputrain", "eager")

    def test_takes_up_what_a_call_that_was_cut_off_has_left(self):
        options = ["--only", "tiny-gpt-fp32", "--contenders", "gputrain", "eager", "--steps", "3", "--warmup", "1"]
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "compare.json"
            cut = subprocess.Popen([sys.executable, str(ROOT / "scripts/bench/compare.py"), "--output", str(output), "--binary", PROGRAM, *options],
                                   stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"})
            self.assertIn("round 1/2: gputrain", cut.stdout.readline())
            cut.kill()
            cut.communicate()
            [left] = json.loads(output.read_text())["results"][0]["runs"]["gputrain"]
            done, report = run_compare(folder, *options, "--continue")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(turns_in(done.stdout), ["eager", "eager", "gputrain"])
        self.assertEqual(report["results"][0]["runs"]["gputrain"][0], left)
        self.assertEqual({name: len(runs) for name, runs in report["results"][0]["runs"].items()}, {"gputrain": 2, "eager": 2})

    def test_begins_nothing_that_there_is_no_time_for(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, str(ROOT / "scripts/bench/compare.py"), "--output", f"{folder}/compare.json", "--binary", PROGRAM,
                                   "--only", "tiny-gpt-fp32", "--contenders", "gputrain", "--rounds", "1", "--budget", "5"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 75)
        self.assertIn("no time for: tiny-gpt-fp32 gputrain", done.stdout)

    def test_what_the_budget_cuts_off_is_unfinished(self):
        with tempfile.TemporaryDirectory() as folder:
            slow = pathlib.Path(folder) / "slow"
            slow.write_text("#!/bin/sh\nexec sleep 60\n")
            slow.chmod(0o755)
            output = pathlib.Path(folder) / "compare.json"
            done = subprocess.run([sys.executable, str(ROOT / "scripts/bench/compare.py"), "--output", output, "--binary", slow, "--only", "tiny-gpt-fp32",
                                   "--contenders", "gputrain", "--rounds", "1", "--budget", "11"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 75, done.stdout + done.stderr)
        self.assertIn("round 1/1: gputrain unfinished: the time was up after", done.stdout)
        self.assertIn("no time for: tiny-gpt-fp32 gputrain", done.stdout)
        self.assertNotIn("FAILED", done.stdout)

    def test_goes_on_when_one_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            done, report = run_compare(folder, "--only", "gpt2", "tiny-resnet18-fp32", "--contenders", "gputrain", "--steps", "2",
                                       "--warmup", "1", "--rounds", "1")
        if report["machine"]["gpu"]:
            self.skipTest("this machine has a GPU: GPT-2 does not fail")
        self.assertEqual(done.returncode, 1)
        self.assertIn("device: cuda", report["results"][0]["runs"]["gputrain"][0]["error"])
        self.assertEqual(report["results"][1]["contenders"]["gputrain"]["rate"] > 0, True)


class CompareWithCompile(ComparisonTest):
    def test_measures_all_three_in_turns_on_equal_work(self):
        self.check("gputrain", "eager", "compile")


if __name__ == "__main__":
    try:
        import torch, torchvision  # noqa: E401, F401
    except ImportError as missing:
        if os.environ.get("CI"):
            raise
        print(f"skipped: {missing}: run scripts/setup.sh --tests")
        raise SystemExit(77)
    unittest.main()
