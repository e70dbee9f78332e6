// Findings as lines for a terminal.
#pragma once

#include <cstddef>
#include <string>

#include "gputrain/doctor/finding.hpp"

namespace gputrain::doctor {

/// Returns "shm     bad   /dev/shm has 64.0 MiB ...\n              try: ...\n". Breaks lines at `columns`.
std::string page(const Findings& findings, size_t columns, bool colour);

/// Returns one line: how many are bad and what that means.
std::string summary_line(const Findings& findings, bool trains_on_cpu);

}  // namespace gputrain::doctor
