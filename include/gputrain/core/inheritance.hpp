// Repairs what a process inherits from its parent besides arguments and environment variables.
#pragma once

namespace gputrain {

/// Undoes harmful settings of the parent process. Call it before the program opens anything.
/// Opens closed standard streams on /dev/null, because the next opened file would get their numbers and our output.
/// Resets SIGCHLD, because the kernel reaps children itself while it is ignored and waitpid() misses them. Unblocks all
/// signals. Ignores SIGXFSZ, so that a write past the file size limit (`ulimit -f`) fails instead of killing the
/// process silently.
void mend_inheritance();

}  // namespace gputrain
