"""The stages of scripts/gpu/first.sh with the real program on a CPU, and how they judge: gpu_stages_test.py GPUTRAIN"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

GPU = pathlib.Path(__file__).resolve().parents[2] / "scripts/gpu"
sys.path[:0] = [str(GPU), str(GPU / "stages")]
import first  # noqa: E402
import runs  # noqa: E402
import sanitize  # noqa: E402
import tight  # noqa: E402
import workload  # noqa: E402
from training import Run, write_job  # noqa: E402

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else ""


class Stages(unittest.TestCase):
    def result(self, script: str, *arguments: str) -> dict:
        done = subprocess.run(
            [sys.executable, GPU / "stages" / script, *arguments],
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout.splitlines()[-1].removeprefix("result "))

    def test_train_stop_and_resume(self):
        found = self.result("runs.py", PROGRAM, "--device", "cpu")
        self.assertEqual(found["problems"], [])
        self.assertRegex(found["says"], r"own kernels in graphs 3\.\d+ to 1\.\d+, stopped at step \d+ and resumed")

    def test_time_a_first_start(self):
        found = self.result("start.py", "tiny-gpt-fp32", PROGRAM, "60")
        self.assertGreater(found["first_step_seconds"], 0)
        self.assertIn("0 kernels chosen", found["says"])

    def test_compare_first_losses_with_atens(self):
        found = self.result("losses.py", PROGRAM, "tiny-gpt-fp32")
        self.assertEqual(found["problems"], [])
        self.assertRegex(found["says"], r"tiny-gpt-fp32: losses [\d.e-]+ % apart, gradient norms [\d.e-]+ %")

    def test_train_what_most_people_train(self):
        for name in workload.WORKLOADS:
            with self.subTest(name):
                found = self.result("workload.py", name, PROGRAM, "60", "--tiny")
                self.assertEqual(found["problems"], [])
                self.assertGreater(found["rate"], 0)

    def test_time_texts_that_a_model_writes(self):
        found = self.result("generation.py", PROGRAM, "60", "--tiny")
        self.assertEqual(found["problems"], [])
        self.assertEqual(set(found["rates"]), {"1", "32"})
        self.assertGreater(min(found["rates"].values()), 0)

    def test_write_valid_jobs_of_full_size(self):
        for name, work in workload.WORKLOADS.items():
            if work.get("adapter"):  # needs 16 GB of weights
                continue
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                job = workload.job_of(name, pathlib.Path(folder), tiny=False) | {"device": "cpu"}
                path = write_job(pathlib.Path(folder) / "job", job)
                done = subprocess.run([PROGRAM, "validate", path], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_write_valid_jobs(self):
        for name in ("gpt2", "resnet50-bf16"):
            with tempfile.TemporaryDirectory() as folder:
                job = tight.job_of(name, evaluates=True) | {"alloc_conf": "per_process_memory_fraction:0.25"}
                done = subprocess.run(
                    [PROGRAM, "validate", write_job(pathlib.Path(folder), job)], capture_output=True, text=True
                )
                self.assertEqual(done.returncode, 0, done.stderr)


class Verdict(unittest.TestCase):
    def judged(self, code: int, said: str, seconds: int = 9, says: str = "") -> dict:
        return first.judge(first.Stage("some", 80, [], says=says), code, said, seconds)

    def test_on_curves_is_their_largest_relative_difference(self):
        self.assertAlmostEqual(runs.apart([2.0, 1.1], [2.0, 1.0]), 0.1)
        for broken in ([2.0], [2.0, float("nan")]):
            self.assertEqual(runs.apart(broken, [2.0, 1.0]), float("inf"))

    def test_on_run_names_what_is_wrong(self):
        good = Run(0, 1, "", losses=[2.0] * runs.STEPS, log=runs.GRAPH)
        self.assertEqual(runs.problems_of("own", good, good, needs_graph=True), [])
        killed = Run(-9, 1, "step 1\nerror: no memory\n")
        self.assertEqual(runs.problems_of("own", killed, good, True), ["own: exit code -9: error: no memory"])

    def test_on_sanitizer_needs_a_summary_unless_time_was_up(self):
        ran = "[       OK ] A.B (1 ms)\n========= Invalid __global__ read of size 2 bytes\n=========     at norm\n"
        self.assertEqual(sanitize.judge(ran, ended=False)[1], ["Invalid __global__ read of size 2 bytes"])
        says, problems = sanitize.judge("[       OK ] A.B (1 ms)\n", ended=True)
        self.assertEqual(problems, ["ended without a summary"])
        self.assertEqual(
            sanitize.judge("[       OK ] A.B (1 ms)\n========= ERROR SUMMARY: 0 errors\n", True),
            ("0 errors in 1 tests", []),
        )

    def test_on_stage_takes_its_last_result(self):
        said = 'result {"says": "half", "problems": []}\nresult {"says": "all", "problems": ["x"]}\nbye\n'
        self.assertEqual(self.judged(1, said), {"outcome": "failed", "says": "all", "problems": ["x"]})
        self.assertEqual(self.judged(1, "error: no disk\n  try: make room")["problems"], ["error: no disk"])
        self.assertEqual(self.judged(0, "gpt2 round 1:  7 ms\nbye\n", says="round")["says"], "gpt2 round 1: 7 ms")

    def test_on_killed_stage_asks_whether_it_had_its_share(self):
        self.assertEqual(self.judged(124, "", 40), {"outcome": "unfinished", "says": "", "problems": []})
        hung = {"outcome": "failed", "says": "", "problems": ["no end after 80 s"]}
        self.assertEqual(self.judged(137, "", 80), hung)


if __name__ == "__main__":
    unittest.main()
