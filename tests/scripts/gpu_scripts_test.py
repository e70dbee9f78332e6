"""Runs scripts/gpu/check.sh as on a machine with a GPU and no network, with fake programs:
what is written when a call is cut off, and where the next one continues."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBE = """#!/bin/sh
[ $# -gt 0 ] || { echo device memory nccl; exit 0; }
for section; do
  [ $section != memory ] || { echo 'memory {"what": "copy"}'; kill -SEGV $$; }
  echo "$section {\\"ms\\": 1}"
  echo "sections {\\"name\\": \\"$section\\", \\"seconds\\": 1}"
done
"""
GPUTRAIN = """#!/bin/sh
plans=${GPUTRAIN_KERNEL_CHOICES%/*}/cudnn_plans
mkdir -p "$plans"
echo plan >"$plans/1"
echo '{"rows": [{"failure": null, "each": {"seconds": [1.0, 2.0]}, "first_loss": 2, "last_loss": 1, "peak_memory_bytes": 5}]}'
"""
PASSES = """#!/bin/sh
echo "$NEEDED" >>ran
case $LD_LIBRARY_PATH in *:/of/the/driver) ;; *) echo "the driver is not found"; exit 1 ;; esac
printf '[ RUN      ] A.B\\n[       OK ] A.B (1 ms)\\n'
"""
HANGS = """#!/bin/sh
[ ! -e "$0.mended" ] || { printf '[ RUN      ] C.D\\n[       OK ] C.D (1 ms)\\n'; exit 0; }
printf '[ RUN      ] C.D\\n'
sleep 300
"""
SLOW = """#!/bin/sh
case $1 in
  '') case=One ;;
  --gtest_filter=-S.One) case=Two/Small ;;
  --gtest_filter=-S.One:S.Two/Small) printf '[ RUN      ] S.Three\\n[       OK ] S.Three (1 ms)\\n'; exit ;;
esac
printf "[ RUN      ] S.$case\\n[       OK ] S.$case (1 ms)\\n[ RUN      ] S.Three\\n"
sleep 300
"""
SEES_NONE = """#!/bin/sh
printf '[ RUN      ] E.F\\nfile.cpp:1: Skipped\\nthere is no GPU here\\n\\n[  SKIPPED ] E.F (0 ms)\\n'
"""


class Machine:
    """A checkout with pack.sh's output, a fake torch with a name and a version, and a fake nvidia-smi."""

    def __init__(self, folder: str, tests: dict[str, str]):
        self.root, self.out = pathlib.Path(folder) / "checkout", pathlib.Path(folder) / "out"
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        site = pathlib.Path(folder) / "site"
        self.write(site / "torch/__init__.py", "raise ImportError('this torch is a name')")
        self.write(site / "torch-2.11.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+cu130\n")
        self.write(pathlib.Path(folder) / "bin/nvidia-smi", "#!/bin/sh\necho 'GPU 0'\n")
        packed = self.root / ".carry"
        for name, text in {"bin/gputrain": GPUTRAIN, "bin/gpu_probe": PROBE, "source_folder": folder + "/built/here",
                           **{f"tests/{name}_test": text for name, text in tests.items()}}.items():
            self.write(packed / name, text)
        self.write(packed / "tests.json", json.dumps([
            {"name": name, "program": f"/elsewhere/{name}_test", "environment": ["NEEDED=yes"]} for name in tests]))
        self.environment = os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}", "PYTHONPATH": str(site), "OUT": str(self.out),
                                         "LD_LIBRARY_PATH": "/of/the/driver"}

    @staticmethod
    def write(path: pathlib.Path, text: str):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def start(self, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen([self.root / "scripts/gpu/check.sh", *arguments], env=self.environment, start_new_session=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def check(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        said = process.communicate(timeout=60)[0]
        return process.returncode, said

    def results(self, name: str):
        path = self.out / name
        return json.loads(path.read_text()) if name.endswith("json") else path.read_text()


class Check(unittest.TestCase):
    def machine(self, **tests: str) -> Machine:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Machine(folder.name, tests)

    def test_an_nvidia_smi_that_knows_no_names_is_enough(self):
        machine = self.machine(passes=PASSES)
        machine.write(machine.root.parent / "bin/nvidia-smi", "#!/bin/sh\n[ $1 = -L ] || exit 9\necho 'GPU 0'\n")
        code, said = machine.check("--only", "tests")
        self.assertEqual(code, 0, said)
        self.assertIn("1 passed, 0 failed", said)

    def test_a_section_that_dies_costs_no_other(self):
        machine = self.machine(passes=PASSES)
        code, said = machine.check("--only", "probe")
        lines = machine.results("probe.log").splitlines()
        self.assertIn('nccl {"ms": 1}', lines, said)
        self.assertIn('sections {"name": "memory", "error": "ended with 139"}', lines)
        self.assertEqual(lines.count('device {"ms": 1}'), 1)
        self.assertEqual(code, 0, said)
        self.assertIn("1 failed", said)

    def test_a_section_that_failed_or_had_no_time_is_tried_once_more(self):
        machine = self.machine(passes=PASSES)
        probe = machine.root / ".carry/bin/gpu_probe"
        machine.write(probe, PROBE.replace("for section; do", "for section; do\n  [ $section != nccl ] || sleep 60"))
        code, said = machine.check("--only", "probe", "--budget", "12")
        self.assertEqual(code, 1, said)
        self.assertIn("no time for: nccl", said)
        self.assertNotIn('"nccl", "error"', machine.results("probe.log"))
        machine.write(probe, PROBE.replace("kill -SEGV $$", ":"))
        code, said = machine.check("--only", "probe", "--continue")
        self.assertEqual(code, 0, said)
        self.assertNotIn('"error"', machine.results("probe.log"))

    def test_all_parts_the_tests_last_and_pytorch_s_failure_is_told(self):
        machine = self.machine(passes=PASSES)
        code, said = machine.check()
        self.assertLess(said.index("== probe"), said.index("== bench"))
        self.assertLess(said.index("== bench"), said.index("== tests"))
        self.assertEqual(code, 1, said)
        self.assertIn("failed or not finished: bench", said)
        runs = machine.results("compare.json")["results"][0]["runs"]
        self.assertEqual(runs["gputrain"][0]["step_seconds"], [1.0, 2.0])
        self.assertIn("this torch is a name", runs["eager"][0]["error"])
        self.assertEqual(machine.results("tests.json")["tests"][0]["passed"], 1)
        self.assertEqual((machine.root / "ran").read_text(), "yes\n")  # in the checkout, with the test's environment

    def test_a_call_that_is_cut_off_leaves_what_it_had_and_the_next_goes_on(self):
        machine = self.machine(passes=PASSES, hangs=HANGS)
        first = machine.start("--only", "probe", "--only", "tests")
        deadline = time.time() + 40
        while not (machine.out / "tests.json").exists() and time.time() < deadline:
            time.sleep(0.1)
        for process in (first.pid, *self.group_of("hangs_test", machine)):
            os.killpg(process, signal.SIGKILL)
        first.communicate()
        self.assertEqual([test["name"] for test in machine.results("tests.json")["tests"]], ["passes"])
        self.assertEqual(machine.results("tests.json")["not_reached"], ["hangs"])
        self.assertIn("nccl", machine.results("probe.log"))
        for file in machine.out.iterdir():
            file.unlink()  # a machine's $OUT is emptied before each command
        (machine.root / ".carry/tests/hangs_test.mended").touch()
        code, said = machine.check("--only", "probe", "--only", "tests", "--continue")
        self.assertEqual(code, 0, said)
        self.assertEqual([test["name"] for test in machine.results("tests.json")["tests"]], ["passes", "hangs"])
        self.assertEqual((machine.root / "ran").read_text(), "yes\n")  # not run again
        self.assertEqual(machine.results("probe.log").count('device {"ms": 1}'), 1)

    def group_of(self, name: str, machine: Machine) -> list[int]:
        """The process groups that `timeout` has created for a test of this machine."""
        commands = {path.parent.name: path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if path.exists()}
        test = f"{machine.root}/.carry/tests/{name}".encode()
        return [int(process) for process, command in commands.items() if command.startswith(b"timeout") and test in command]

    def test_a_test_that_hangs_or_sees_no_gpu_fails_and_the_others_run(self):
        machine = self.machine(hangs=HANGS, sees_none=SEES_NONE, passes=PASSES)
        machine.out.mkdir()
        done = subprocess.run(["python3", machine.root / "scripts/gpu/run_tests.py", machine.root / ".carry", machine.out, "--limit", "1"],
                              capture_output=True, text=True, timeout=60, env=machine.environment | {"LD_LIBRARY_PATH": "x:/of/the/driver"})
        self.assertEqual(done.returncode, 1)
        hangs, sees_none, passes = machine.results("tests.json")["tests"]
        self.assertIn("killed after", hangs["code"])
        self.assertEqual(hangs["unfinished"], ["C.D"])
        self.assertEqual(sees_none["saw_no_gpu"], ["E.F"])
        self.assertEqual(passes["code"], 0)
        self.assertIn("1 passed, 2 failed, 1 skipped", done.stdout)

    def test_a_program_that_is_killed_goes_on_with_the_cases_that_are_left(self):
        machine = self.machine(slow=SLOW, passes=PASSES)
        machine.out.mkdir()
        environment = machine.environment | {"LD_LIBRARY_PATH": "x:/of/the/driver"}

        def run(*arguments: str) -> subprocess.CompletedProcess:
            return subprocess.run(["python3", machine.root / "scripts/gpu/run_tests.py", machine.root / ".carry", machine.out, "--limit", "3",
                                   *arguments], capture_output=True, text=True, timeout=60, env=environment)

        first = run("--budget", "8")  # too little time is left for another start
        self.assertEqual(first.returncode, 1, first.stdout)
        self.assertIn("no time for: ", first.stdout)
        second = run("--continue")
        self.assertEqual(second.returncode, 0, second.stdout)
        tests = {test["name"]: test for test in machine.results("tests.json")["tests"]}
        self.assertEqual(tests["slow"]["cases"], ["S.One", "S.Three", "S.Two/Small"])
        self.assertEqual((machine.root / "ran").read_text(), "yes\n")

    def test_results_of_other_programs_are_set_aside(self):
        machine = self.machine(passes=PASSES)
        machine.check("--only", "tests")
        machine.write(machine.root / ".carry/bin/gputrain", GPUTRAIN + "# another")
        said = machine.check("--only", "tests", "--continue")[1]
        self.assertIn("build/gpu.before", said)
        self.assertTrue((machine.root / "build/gpu.before/tests.json").exists())
        self.assertEqual((machine.root / "ran").read_text(), "yes\nyes\n")

    def test_plans_come_back_in_one_file_and_are_there_again_on_an_empty_machine(self):
        machine = self.machine(passes=PASSES)
        said = machine.check("--only", "bench")[1]
        self.assertIn("cudnn_plans.tar.gz", os.listdir(machine.out), said)
        shutil.rmtree(machine.root / "build/gpu")
        shutil.copytree(machine.out, machine.root / "build/gpu")
        machine.check("--only", "tests", "--continue")
        self.assertEqual((machine.root / "build/gpu/cudnn_plans/1").read_text(), "plan\n")

    def test_without_time_nothing_is_begun(self):
        machine = self.machine(passes=PASSES)
        code, said = machine.check("--budget", "5")
        self.assertEqual(code, 1)
        self.assertIn("no time for: tests", said)
        self.assertFalse((machine.root / "ran").exists())


if __name__ == "__main__":
    unittest.main()
