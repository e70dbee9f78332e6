// Facts about this process, and what it owes as the first one of a container.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <sys/types.h>

namespace gputrain {

/// Reads an environment variable by name; nothing if it is unset. Tests pass variables of their own.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

/// Wall-clock seconds since the kernel started this process (program loading included), to about 10 ms. A script that
/// ends in `exec gputrain` is the same process: its time counts too.
double seconds_since_process_start();

/// The path of this program; of one that was replaced by another while it ran (an upgrade, a new build), that other's.
std::string own_program();

/// Raises what this process may have open to what the system lets it, up to 65,536: the usual 1024 are less than what a
/// rank of many, or a data set of many files, needs.
void raise_open_files_limit();

/// Whether this process is PID 1: the kernel keeps signals from it that it has no handler for, gives it all orphans,
/// and ends everything else with it.
bool is_init();

/// Lets the signals that end other processes end this one too, where nobody handles them; for PID 1.
void let_signals_end_init();

/// Collects ended children; those of which `is_known` is true are left to whoever started them.
void collect_orphans(const std::function<bool(pid_t)>& is_known);

}  // namespace gputrain
