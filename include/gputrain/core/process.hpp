// Facts about this process, what it inherits from its parent, and its duties as PID 1 of a container.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <sys/types.h>

namespace gputrain {

/// Reads an environment variable by name; nothing if it is unset. Tests pass variables of their own.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

/// Returns wall-clock seconds since the kernel started this process (includes program loading), to about 10 ms. A
/// script that ends in `exec gputrain` is the same process, so its time counts too.
double seconds_since_process_start();

/// Returns the path of this program. If the file was replaced while the program runs (an upgrade, a new build), the
/// path of the new file.
std::string own_program();

/// Throws Error(environment) if the current folder has been deleted: libraries that look for it would end the process.
void require_current_folder();

/// Raises the limit on open files to the hard limit, at most 65,536. The usual 1024 is too low for a rank of a large
/// job or for a data set of many files.
void raise_open_files_limit();

/// Returns whether this process is PID 1. The kernel then drops signals without a handler, makes it the parent of all
/// orphans, and kills all other processes of the container when it ends.
bool is_init();

/// Installs handlers if this is PID 1, so that the usual terminating signals end it; keeps handlers that exist.
void let_signals_end_init();

/// Reaps ended children. Leaves those for which `is_known` is true to their owner.
void collect_orphans(const std::function<bool(pid_t)>& is_known);

/// Undoes harmful settings of the parent process. Call it before the program opens anything.
/// Opens closed standard streams on /dev/null, because the next opened file would get their numbers and our output.
/// Resets SIGCHLD, because the kernel reaps children itself while it is ignored and waitpid() misses them. Unblocks all
/// signals. Ignores SIGXFSZ, so that a write past the file size limit (`ulimit -f`) fails instead of killing the
/// process silently.
void mend_inheritance();

}  // namespace gputrain
