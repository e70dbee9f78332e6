// Traces that the death of a process leaves on its host: by the out-of-memory killer and the GPU driver.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/core/descriptor.hpp"

namespace gputrain::launch {

class KernelLogProbe {
 public:
  KernelLogProbe();  // ignores earlier events

  /// Returns what has happened since the last call that explains the end of process `id`; empty: nothing found.
  std::string since_last(int id);

 private:
  Descriptor kernel_log_;
  int64_t kills_;
};

/// Returns the line itself if it reports a lack of memory or a GPU error; else an empty text.
std::string find_oom_or_xid(const std::string& line);

}  // namespace gputrain::launch
