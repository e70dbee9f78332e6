"""Reads ctest's last log and prints how many test cases passed, failed and were skipped, and why they were skipped.

usage: summarize_tests.py NAME BUILD_DIR

With CI set, a skip fails unless nothing could be installed against it: no GPU, no data sets, one core, being root, what
a container may not do, a sanitizer's own memory, or a smaller case that stands for a larger one of the same kind.
"""

import os
import re
import sys
from pathlib import Path

PROGRAM = re.compile(r"^\d+/\d+ Test: (?P<name>\S+)$", re.M)
SKIP = re.compile(r"^(?:\S+: )?Skipped\n(?P<reason>.*?)\n?\[  SKIPPED \] (?P<case>\S+)(?: \(\d+ ms\))?$", re.M | re.S)

SCRIPT_SKIP = re.compile(r"^skipped: (?P<reason>.*)$", re.M)  # of a whole test that is no test program of C++

ALLOWED_IN_CI = re.compile(r"\bGPUs?\b|GPUTRAIN_TEST_DATA|\bone core\b|\broot may\b|\bnot possible here\b|\bsanitizer's\b|"
                           r"\bstands for it\b")


def main() -> int:
    name, build = sys.argv[1], Path(sys.argv[2])
    log = (build / "Testing/Temporary/LastTest.log").read_text(errors="replace")
    parts = PROGRAM.split(log)[1:]
    passed = failed = 0
    skips: list[tuple[str, str]] = []
    for program, output in zip(parts[::2], parts[1::2]):
        cases_passed, cases_failed = count(output, r"\[  PASSED  \] (\d+) test"), count(output, r"^ ?(\d+) FAILED TEST")
        whole = "[==========]" not in output and SCRIPT_SKIP.search(output)
        if whole:
            skips.append((program, whole["reason"]))
        elif re.search(r"^Test Passed\.$", output, re.M):
            passed += cases_passed or (0 if "[==========]" in output else 1)
        else:
            passed, failed = passed + cases_passed, failed + (cases_failed or 1)
        skips += [(skip["case"], " ".join(skip["reason"].split())) for skip in SKIP.finditer(output)]

    print(f"{name}: {passed} passed, {failed} failed, {len(skips)} skipped")
    wrong = [skip for skip in skips if os.environ.get("CI") and not ALLOWED_IN_CI.search(skip[1])]
    for case, reason in skips:
        print(f"  skipped {case}: {reason}{'  <- not allowed in CI' if (case, reason) in wrong else ''}")
    if not passed:
        print(f"  no test ran in {build}")
    return 1 if failed or wrong or not passed else 0


def count(text: str, pattern: str) -> int:
    return sum(int(number) for number in re.findall(pattern, text, re.M))


if __name__ == "__main__":
    sys.exit(main())
