// How busy a host is, with all its processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

namespace gputrain::device {

class HostLoad {
 public:
  explicit HostLoad(std::filesystem::path proc = "/proc") : proc_(std::move(proc)), last_(times()) {}

  /// Returns the share of time in which the processors computed since the last call; NaN: the system does not tell.
  double cpu_ratio();

  /// Returns the memory in use: of the machine, or of the container if it has a limit.
  static int64_t memory_used_bytes();

 private:
  struct Times {
    int64_t idle = 0, all = 0;  // of all processors together, since the start of the system
  };
  Times times() const;

  std::filesystem::path proc_;
  Times last_;
};

}  // namespace gputrain::device
