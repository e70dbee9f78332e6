// What a host says about the death of a process: the out-of-memory killer and the GPU driver leave traces.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/core/descriptor.hpp"

namespace gputrain::launch {

class HostSigns {
 public:
  HostSigns();  // from now on

  /// What has happened since the last call that explains the end of process `id`; empty: nothing that shows.
  std::string since_last(int id);

 private:
  Descriptor kernel_log_;
  int64_t kills_;
};

/// The first of the lines that tells of memory run out or of a GPU error; empty: none does.
std::string telling_line(const std::string& line);

}  // namespace gputrain::launch
