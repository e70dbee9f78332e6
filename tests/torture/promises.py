"""gputrain's promises that the torture test checks. If a promise changes, change only this file."""

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


def depends_on_clock(key):
    """Keys that may differ in metrics.jsonl between interrupted and uninterrupted runs; all others are equal."""
    return key.startswith("time") or key.endswith("_per_second")


KEEP_LAST = 2

# Allowed exit codes per disturbance; with one of ERROR_CODES, a message must name the cause.
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
