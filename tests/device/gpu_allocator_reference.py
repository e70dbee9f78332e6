"""PyTorch's verdict on allocator settings: reads one per line from a file, and writes "yes" or "no" for each to
another."""
import sys

import torch

with open(sys.argv[1]) as settings, open(sys.argv[2], "w") as verdicts:
    for line in settings:
        try:
            torch._C._accelerator_setAllocatorSettings(line.rstrip("\n"))
            print("yes", file=verdicts)
        except (ValueError, RuntimeError, IndexError):
            print("no", file=verdicts)
