"""What gputrain promises, as far as the torture relies on it: the one place to change when a promise does."""

import errno
import re

RESUMED = re.compile(r"^resume +step ([\d,]+) from \S*?/(step-\d+)(?:-\d+)?\s", re.M)
STARTED_FRESH = re.compile(r"^resume +none found", re.M)
STEP_LINE = re.compile(r"^step ", re.M)

DONE, CHECKPOINT_ERROR, ENVIRONMENT_ERROR, STOPPED, KILLED = 0, 5, 6, 143, -9

CAUSES = {
    errno.ENOSPC: ("No space left on device", "no room for a checkpoint"),
    errno.EIO: ("Input/output error",),
    errno.EROFS: ("Read-only file system",),
}

# Rows of metrics.jsonl are equal with and without interruptions, but for these.
CLOCK_KEYS = {"time", "train/tokens_per_second", "train/samples_per_second"}

KEEP_LAST = 2

# Exit codes by what was done to an attempt; those of ERROR_CODES come with a message that names the cause.
EXIT_CODES = {
    "kill": {KILLED},
    "go on": {STOPPED, DONE},
    "error once": {STOPPED, DONE},
    "errors": {CHECKPOINT_ERROR},
    "error in the run folder": {CHECKPOINT_ERROR, ENVIRONMENT_ERROR, STOPPED, DONE},
    "full disk": {CHECKPOINT_ERROR, ENVIRONMENT_ERROR, STOPPED, DONE},
    "read-only": {CHECKPOINT_ERROR, DONE},
}
ERROR_CODES = {CHECKPOINT_ERROR, ENVIRONMENT_ERROR}


def may_pass_in_silence(operation: str, path: str) -> bool:
    """An error nobody needs to hear of: after the sync, a close can take nothing back; hints are hints."""
    return operation == "close" or path.rsplit("/", 1)[-1].split(".")[0] in ("latest", "best")
