"""Runs scripts/gpu/first.sh on a fake machine: order and outcomes of stages, what a call that is cut off leaves, where
the next one goes on."""

import os
import shutil
import tempfile
import time
import unittest

from fake_machine import GPUTRAIN, HANGS, PASSES, Machine

MOST_FILES = 7  # a remote machine may return only eight, and a kill may leave a copy half made


class First(unittest.TestCase):
    def machine(self, **tests: str) -> Machine:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Machine(folder.name, {"gpu_ops": PASSES} | tests)

    def test_runs_all_stages_and_leaves_page_and_json(self):
        machine = self.machine(recording=PASSES, device=PASSES, nccl=PASSES, on_gpu=PASSES)
        code, said = machine.run("first.sh")
        outcomes = machine.stages()
        failed = [name for name, outcome in outcomes.items() if outcome != "passed"]
        self.assertEqual(failed, ["pytorch", "fp16", "rounds"], said)
        self.assertEqual(code, 1)
        report = machine.results("first.json")
        self.assertIn("this torch is a name", " ".join(report["stages"]["pytorch"]["problems"]))
        self.assertEqual(report["speed"][0]["programs"]["gputrain"]["step_seconds"], 1.5)
        self.assertEqual(report["kernels"]["aten"][0]["operator"], "pool 9x9")
        self.assertIn("the loader is slow", report["warnings"])
        self.assertIn("first step after 12.5 s", report["stages"]["gpt2-start"]["says"])
        self.assertIn("1.05 times the peak", report["stages"]["tight"]["says"])
        self.assertIn("resnet50-bf16: losses 0 % apart, gradient norms 0 %", report["stages"]["losses"]["says"])
        page = machine.results("first.md")
        self.assertIn(page.strip(), said)
        for words in (
            "# gputrain  on NVIDIA H100",
            "- pytorch: ",
            "| gpt2 | gputrain | 1,500.00 ms",
            "| pool 9x9 | 3 | 2 |",
        ):
            self.assertIn(words, page)
        self.assertLessEqual(len(os.listdir(machine.out)), MOST_FILES)

    def test_names_what_is_wrong(self):
        machine = self.machine()
        machine.write(machine.packed / "bin/gputrain", GPUTRAIN.replace("one CUDA graph", "not one"))
        code, said = machine.run(
            "first.sh", "runs", "losses", "memcheck", "tight", DEVIATION="0.05", BAD_KERNEL="yes", OUT_OF_MEMORY="yes"
        )
        self.assertEqual(code, 1)
        for problem in (
            "runs: own kernels in graphs: a loss differs from ATen's by 1.8 %",
            "runs: aten in graphs: no step became a CUDA graph",
            "losses: gpt2: losses 1.7 % apart, gradient norms 45 %",
            "memcheck: Invalid __global__ write of size 4 bytes",
            "tight: with evaluations: exit code 6: error: out of memory",
        ):
            self.assertIn("- " + problem, said)
        self.assertNotIn("aten: no step", said)
        self.assertNotIn("aten in graphs: a loss", said)

    def test_goes_on_where_it_was_killed(self):
        machine = self.machine(gpu_ops=HANGS, recording=PASSES)
        first = machine.start("first.sh", "device", "tests", "memcheck")
        ran = machine.root / "build/gpu/first.log"
        deadline = time.time() + 40
        while not (machine.out / "first.json").exists() or "[ RUN      ] C.D" not in ran.read_text():
            self.assertLess(time.time(), deadline)
            time.sleep(0.1)
        machine.kill_all(first)
        self.assertEqual(machine.stages()["device"], "passed")
        shutil.move(machine.out, machine.folder / "brought")
        shutil.rmtree(machine.root / "build")  # another machine
        said = machine.run("bring.sh", str(machine.folder / "brought"))[1]
        self.assertIn("To carry: .carry build/gpu", said)
        (machine.packed / "tests/gpu_ops_test.mended").touch()
        code, said = machine.run("first.sh", "device", "tests", "memcheck")
        self.assertEqual(code, 0, said)
        self.assertNotIn("device  ", said.split("# gputrain")[0])  # not run again
        self.assertEqual(machine.stages()["tests"], "passed")

    def test_measures_anew_on_another_machine(self):
        machine = self.machine()
        machine.run("first.sh", "device", "gpt2")
        said = machine.run("first.sh", "device", "gpt2", DRIVER="580.2")[1]
        self.assertIn("measured anew: gpt2", said)
        self.assertEqual(len(machine.results("compare.json")["results"][0]["runs"]["gputrain"]), 1)
        self.assertTrue((machine.root / "build/gpu/compare.json.before").exists())
        self.assertNotIn("device  ", said.split("# gputrain")[0])

    def test_takes_up_what_was_brought_unless_programs_changed(self):
        machine = self.machine()
        machine.run("first.sh", "gpt2-start")
        shutil.rmtree(machine.root / "build/gpu")
        machine.run("bring.sh", str(machine.out))
        machine.run("first.sh", "tests")
        self.assertEqual((machine.root / "build/gpu/cudnn_plans/1").read_text(), "plan\n")
        self.assertEqual(machine.stages()["gpt2-start"], "passed")
        machine.write(machine.packed / "bin/gputrain", GPUTRAIN + "# another")
        shutil.rmtree(machine.root / "build/gpu")
        machine.run("bring.sh", str(machine.out))
        self.assertIn("build/gpu.before", machine.run("first.sh", "tests")[1])
        self.assertEqual(machine.stages()["gpt2-start"], "not reached")
        self.assertEqual((machine.root / "ran").read_text(), "yes\nyes\n")

    def test_begins_nothing_without_time(self):
        machine = self.machine()
        code, said = machine.run("first.sh", "--budget", "5")
        self.assertEqual(code, 75, said)
        self.assertIn("goes on with: device runs tests", said)
        self.assertFalse((machine.root / "ran").exists())

    def test_refuses_unknown_stage(self):
        code, said = self.machine().run("first.sh", "bench")
        self.assertEqual(code, 1)
        self.assertIn("there is no stage 'bench'", said)


if __name__ == "__main__":
    unittest.main()
