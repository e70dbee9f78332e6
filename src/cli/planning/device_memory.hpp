// Memory of a rank's device, as in --device-memory.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/job/job_spec.hpp"

namespace gputrain::app {

/// Returns the bytes of "80GiB", "80 GB" or "512MiB"; if `text` is empty, of a GPU here that the job would use; 0:
/// unknown. Throws Error(usage).
int64_t device_bytes(const std::string& text, const JobSpec& spec);

}  // namespace gputrain::app
