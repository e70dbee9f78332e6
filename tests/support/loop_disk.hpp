// A disk of one simulated host: a file system in a file, which the kernel can be told to write slowly.
#pragma once

#include <cstdint>
#include <string>

#include "support/program.hpp"
#include "support/ssh_hosts.hpp"

namespace gputrain::testing_support {

class LoopDisk {
 public:
  /// What is missing to make them, as the reason of a skip; empty: nothing.
  static std::string missing();

  /// Mounts it at `folder`, which this host alone sees.
  LoopDisk(const SshHosts& hosts, int host, const std::string& folder);
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;
  ~LoopDisk();

  /// For all that is started on the host from now on.
  void slow_down(int64_t bytes_per_second);

 private:
  const SshHosts& hosts_;
  int host_;
  TemporaryFolder folder_;
  std::string device_;  // "/dev/loop0"
  std::string group_;   // of processes with a limit; empty: none
};

}  // namespace gputrain::testing_support
