"""summarize_tests.py counts cases in ctest's log, and allows CI to skip only what it cannot install."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/summarize_tests.py"

SKIPS = """[ RUN      ] Net.trains_there
net_test.cpp:3: Skipped
{reason}
[  SKIPPED ] Net.trains_there (0 ms)
"""


def program(name: str, output: str, passed: bool = True) -> str:
    return f"""1/9 Testing: {name}
1/9 Test: {name}
Command: "{name}_test"
Output:
----------------------------------------------------------
{output}<end of output>
Test time =   0.01 sec
----------------------------------------------------------
Test {'Passed' if passed else 'Failed'}.
"{name}" end time: now

"""


class SummarizeTests(unittest.TestCase):
    def summarize(self, *programs: str, ci: bool = False) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as build:
            log = pathlib.Path(build) / "Testing/Temporary/LastTest.log"
            log.parent.mkdir(parents=True)
            log.write_text("".join(programs))
            environment = {key: value for key, value in os.environ.items() if key != "CI"} | ({"CI": "true"} if ci else {})
            return subprocess.run([sys.executable, SCRIPT, "fast", build], capture_output=True, text=True, env=environment)

    def test_cases_of_all_programs_are_added_up(self):
        result = self.summarize(program("a", "[==========] 2 tests\n[  PASSED  ] 2 tests.\n"), program("script", ""))
        self.assertEqual((result.returncode, result.stdout.strip()), (0, "fast: 3 passed, 0 failed, 0 skipped"))

    def test_failed_cases_and_crashes_fail(self):
        one = program("a", "[==========] 3 tests\n[  PASSED  ] 2 tests.\n 1 FAILED TEST\n", passed=False)
        result = self.summarize(one, program("b", "Segmentation fault\n", passed=False))
        self.assertEqual((result.returncode, result.stdout.strip()), (1, "fast: 2 passed, 2 failed, 0 skipped"))

    def test_a_skip_is_printed_with_its_reason(self):
        passed = program("a", "[  PASSED  ] 1 test.\n" + SKIPS.format(reason="no Python module\ntransformers"))
        result = self.summarize(passed)
        self.assertEqual(result.returncode, 0)
        self.assertIn("skipped Net.trains_there: no Python module transformers", result.stdout)

    def test_in_ci_only_what_cannot_be_installed_excuses(self):
        for reason, code in (("this machine has no GPU", 0), ("no mnist in the folder that GPUTRAIN_TEST_DATA names", 0),
                             ("root may read everything", 0), ("resnet18 stands for it", 0),
                             ("not possible here: unshare: unshare failed: Operation not permitted", 0),
                             ("a sanitizer's terabytes of addresses", 0),
                             ("no Python module transformers", 1)):
            passed = program("a", "[  PASSED  ] 1 test.\n" + SKIPS.format(reason=reason))
            self.assertEqual(self.summarize(passed, ci=True).returncode, code, reason)

    def test_a_script_that_is_skipped_counts_as_a_skip(self):
        skipped = program("watching", "skipped: not installed: prometheus\n"), program("script", "")
        self.assertEqual(self.summarize(*skipped).returncode, 0)
        result = self.summarize(*skipped, ci=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("1 passed, 0 failed, 1 skipped\n  skipped watching: not installed: prometheus  <- not allowed", result.stdout)

    def test_no_test_at_all_fails(self):
        self.assertEqual(self.summarize().returncode, 1)


if __name__ == "__main__":
    unittest.main()
