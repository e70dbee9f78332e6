"""scripts/gpu beside first.sh: probe.sh and run_tests.py where programs die, hang or see no GPU; the size of a pack."""

import json
import pathlib
import random
import shutil
import subprocess
import tarfile
import tempfile
import unittest

from fake_machine import HANGS, PASSES, PROBE, ROOT, Machine

SLOW = """#!/bin/sh
case $1 in
  '') case=One ;;
  --gtest_filter=-S.One) case=Two/Small ;;
  --gtest_filter=-S.One:S.Two/Small) printf '[ RUN      ] S.Three\\n[       OK ] S.Three (1 ms)\\n'; exit ;;
esac
printf "[ RUN      ] S.$case\\n[       OK ] S.$case (1 ms)\\n[ RUN      ] S.Three\\n"
sleep 300
"""
FAILS = """#!/bin/sh
printf '[ RUN      ] G.H\\n[  FAILED  ] G.H (1 ms)\\n\\n[  FAILED  ] G.H\\n'
exit 1
"""
CHOOSES = """#!/bin/sh
if [ -e "$GPUTRAIN_KERNEL_CHOICES" ] || [ -e "$GPUTRAIN_KERNEL_CHOICES.trials" ]; then exit 1; fi
folder=$(dirname "$GPUTRAIN_KERNEL_CHOICES")/cudnn_plans
mkdir -p "$folder" "$GPUTRAIN_KERNEL_CHOICES.trials"
touch "$GPUTRAIN_KERNEL_CHOICES" "$folder/$$"
printf '[ RUN      ] A.B\\n[       OK ] A.B (1 ms)\\n'
"""
SEES_NONE = """#!/bin/sh
printf '[ RUN      ] E.F\\nfile.cpp:1: Skipped\\nthere is no GPU here\\n\\n[  SKIPPED ] E.F (0 ms)\\n'
"""


class OnFakeMachine(unittest.TestCase):
    def machine(self, **tests: str) -> Machine:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Machine(folder.name, tests)


class Probe(OnFakeMachine):
    def test_loses_no_section_but_the_one_that_dies(self):
        machine = self.machine(passes=PASSES)
        code, said = machine.run("probe.sh")
        lines = machine.results("probe.log").splitlines()
        self.assertIn('nccl {"ms": 1}', lines, said)
        self.assertIn('sections {"name": "memory", "error": "ended with 139"}', lines)
        self.assertEqual(lines.count('device {"ms": 1}'), 1)
        self.assertEqual(code, 0, said)
        self.assertIn("1 failed", said)

    def test_tries_again_what_failed_or_had_no_time(self):
        machine = self.machine(passes=PASSES)
        probe = machine.packed / "bin/gpu_probe"
        machine.write(probe, PROBE.replace("for section; do", "for section; do\n  [ $section != nccl ] || sleep 60"))
        code, said = machine.run("probe.sh", "--budget", "10")
        self.assertEqual(code, 75, said)
        self.assertIn("no time for: nccl", said)
        self.assertNotIn('"nccl", "error"', machine.results("probe.log"))
        machine.write(probe, PROBE.replace("kill -SEGV $$", ":"))
        code, said = machine.run("probe.sh", "--continue")
        self.assertEqual(code, 0, said)
        self.assertNotIn('"error"', machine.results("probe.log"))

    def test_needs_a_driver_for_cuda_13(self):
        machine = self.machine(passes=PASSES)
        machine.write(machine.folder / "bin/nvidia-smi", "#!/bin/sh\necho '570.10 CUDA Version: 12.8'\n")
        code, said = machine.run("probe.sh")
        self.assertEqual(code, 1)
        self.assertIn("supports CUDA up to 12.8", said)


class Tests(OnFakeMachine):
    def run_tests(self, machine: Machine, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        machine.out.mkdir(exist_ok=True)
        command = [
            "python3",
            machine.root / "scripts/gpu/run_tests.py",
            machine.packed,
            machine.out,
            *arguments,
        ]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            env=machine.environment | {"LD_LIBRARY_PATH": "x:/of/the/driver"} | environment,
        )

    def test_fail_if_one_hangs_or_sees_no_gpu(self):
        machine = self.machine(hangs=HANGS, sees_none=SEES_NONE, passes=PASSES)
        done = self.run_tests(machine, "--limit", "1")
        self.assertEqual(done.returncode, 1)
        hangs, sees_none, passes = machine.results("tests.json")["tests"]
        self.assertIn("killed after", hangs["code"])
        self.assertEqual(hangs["unfinished"], ["C.D"])
        self.assertEqual(sees_none["saw_no_gpu"], ["E.F"])
        self.assertEqual(passes["code"], 0)
        self.assertIn("1 passed, 2 failed, 1 skipped", done.stdout)

    def test_run_only_what_is_named(self):
        machine = self.machine(passes=PASSES, hangs=HANGS)
        done = self.run_tests(machine, "--only", "passes")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("1 passed, 0 failed", done.stdout)
        self.assertIn("==== passes", machine.results("tests.log"))

    def test_run_in_the_order_that_is_named(self):
        machine = self.machine(first=PASSES, second=PASSES)
        self.run_tests(machine, "--only", "second", "first")
        self.assertEqual([test["name"] for test in machine.results("tests.json")["tests"]], ["second", "first"])

    def test_are_unfinished_if_the_time_of_all_is_up(self):
        machine = self.machine(hangs=HANGS, fails=FAILS)
        done = self.run_tests(machine, "--only", "fails", "hangs", "--budget", "7")
        self.assertIn("no time for hangs", done.stdout)
        failed, hangs = machine.results("tests.json")["tests"]
        self.assertEqual((failed["failed"], failed["unfinished"], hangs["unfinished"]), (["G.H"], [], ["C.D"]))
        self.assertEqual(done.returncode, 1)
        (machine.packed / "tests/fails_test").write_text(PASSES)
        again = self.run_tests(machine, "--only", "fails", "hangs", "--budget", "7", "--continue")
        self.assertEqual(again.returncode, 75, again.stdout)
        self.assertIn("1 passed, 0 failed, 0 skipped, no time for hangs", again.stdout)

    def test_choose_their_kernels_anew(self):
        machine = self.machine(chooses=CHOOSES)
        for _ in range(2):
            done = self.run_tests(machine, GPUTRAIN_KERNEL_CHOICES=str(machine.out / "kernel_choices.jsonl"))
            self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([path.name for path in machine.out.glob("kernel*")], [])
        self.assertEqual(len(list((machine.out / "of_tests").glob("cudnn_plans/*"))), 2)

    def test_go_on_with_cases_left_by_a_kill(self):
        machine = self.machine(slow=SLOW, passes=PASSES)
        first = self.run_tests(machine, "--limit", "3", "--budget", "8")  # too little time is left for another start
        self.assertEqual(first.returncode, 75, first.stdout)
        self.assertIn("no time for slow", first.stdout)
        second = self.run_tests(machine, "--limit", "3", "--continue")
        self.assertEqual(second.returncode, 0, second.stdout)
        tests = {test["name"]: test for test in machine.results("tests.json")["tests"]}
        self.assertEqual(tests["slow"]["cases"], ["S.One", "S.Three", "S.Two/Small"])
        self.assertEqual((machine.root / "ran").read_text(), "yes\n")


class Pack(unittest.TestCase):
    def pack(self, *options: str) -> tuple[int, str]:
        """Packs a checkout with a program of two megabytes, twice; nothing is set up or built."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shutil.copytree(ROOT / "scripts", folder / "scripts")
            for script in ("scripts/setup.sh", "scripts/build.sh", "bin/strip"):
                Machine.write(folder / script, "#!/bin/sh\n")
            program = folder / "build/cuda/tests/device/device_test"
            Machine.write(program, "")
            Machine.write(program.with_name("libfake.so"), "")
            listed = {"tests": [{"name": "device", "command": [str(program)], "properties": []}]}
            Machine.write(folder / "bin/ctest", f"#!/bin/sh\necho '{json.dumps(listed)}'\n")
            Machine.write(folder / "build/cuda/bin/gputrain", "")
            Machine.write(folder / "build/cuda/lib/libgputrain.so", "")
            (folder / "build/cuda/bin/gputrain").write_bytes(random.Random(1).randbytes(2 << 20))
            shutil.copy(folder / "build/cuda/bin/gputrain", folder / "build/cuda/bin/gpu_probe")
            done = subprocess.run([folder / "scripts/gpu/pack.sh", *options], capture_output=True, text=True,
                                  env=Machine.path_first(folder / "bin"))
            if done.returncode == 0:
                with tarfile.open(folder / ".carry/packed.tar.xz") as archive:
                    for name in ("./bin/gpu_probe", "./tests/device_test", "./tests/device/libfake.so"):
                        self.assertIn(name, archive.getnames())
            return done.returncode, done.stdout + done.stderr

    def test_is_refused_if_too_large(self):
        code, said = self.pack("--most", "2")
        self.assertEqual(code, 1)
        self.assertIn("has 2 MB; a lent machine takes less than 2", said)

    def test_holds_equal_parts_once(self):
        code, said = self.pack("--most", "3")
        self.assertEqual(code, 0, said)
        self.assertIn("Packed 4", said)


if __name__ == "__main__":
    unittest.main()
