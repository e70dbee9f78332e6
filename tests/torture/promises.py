"""gputrain's promises that the torture test checks. If a promise changes, change only this file."""

import errno
import re

RESUMED = re.compile(r"^resume +step ([\d,]+) from \S*?/(step-\d+)(?:-\d+)?\s", re.M)
STARTED_FRESH = re.compile(r"^resume +none found", re.M)
STEP_LINE = re.compile(r"^step ", re.M)

DONE, CHECKPOINT_ERROR, ENVIRONMENT_ERROR, RESTART, STOPPED, KILLED = 0, 5, 6, 138, 143, -9

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
    "kill all": {KILLED},
    "go on": {STOPPED, DONE},
    "error once": {STOPPED, DONE},
    "errors": {CHECKPOINT_ERROR},
    "error in the run folder": {CHECKPOINT_ERROR, ENVIRONMENT_ERROR, STOPPED, DONE},
    "full disk": {CHECKPOINT_ERROR, ENVIRONMENT_ERROR, STOPPED, DONE},
    "read-only": {CHECKPOINT_ERROR, DONE},
}
ERROR_CODES = {CHECKPOINT_ERROR, ENVIRONMENT_ERROR}

# Of a launched job, where they differ: the launcher outlives a killed rank, and asks for a restart.
EXIT_CODES_OF_LAUNCHER = {"kill": {RESTART}}
SECONDS_UNTIL_ALL_ARE_GONE = 10  # all processes of a launched job, after its launcher


def exit_codes(disturbance: str, is_launched: bool) -> set[int]:
    of_launcher = EXIT_CODES_OF_LAUNCHER if is_launched else {}
    return of_launcher.get(disturbance, EXIT_CODES[disturbance])


def may_pass_in_silence(operation: str, path: str) -> bool:
    """An error nobody needs to hear of: after the sync, a close can take nothing back; hints are hints; a note that
    rank 0 has read may stay."""
    is_read_note = operation == "unlink" and path.endswith(".written")
    return operation == "close" or is_read_note or path.rsplit("/", 1)[-1].split(".")[0] in ("latest", "best")
