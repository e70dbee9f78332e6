"""Runs gputrain, a program of C++, with the LibTorch of the torch package that is installed beside it."""
import os
import pathlib
import sys

NEEDED = "@TORCH@"  # the only version whose LibTorch the program can load


def main():
    here = pathlib.Path(__file__).resolve().parent
    if not any(here.parent.glob(f"torch-{NEEDED}*.dist-info")):
        sys.exit(f"error: torch {NEEDED} is not installed in {here.parent}, beside gputrain\n"
                 f"  try    {sys.executable} -m pip install torch=={NEEDED}")
    program = here / "bin/gputrain"
    os.execv(program, [program, *sys.argv[1:]])
