// Two nodes of Slurm on this machine.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "support/needs.hpp"
#include "support/program.hpp"

namespace gputrain::testing_support {

/// The two nodes of slurm.sh, in namespaces of their own.
class SlurmCluster {
 public:
  static std::string missing() {
    std::string attempt;
    for (const auto& word : in_own_namespaces({})) attempt += word + " ";
    return gputrain::testing::why_not(
        attempt + "sh -c 'ip link add cluster type veth peer name other && mount -t tmpfs tmpfs /run && hostname n1'");
  }

  SlurmCluster()
      : nodes_(in_own_namespaces({GPUTRAIN_SOURCE_DIR "/tests/program/clusters/slurm.sh", folder_ / "slurm", "sh", "-c",
                                  "echo is up; sleep 1000"})) {
    if (!nodes_.prints("is up")) throw std::runtime_error(nodes_.wait(1).err);
  }

  /// What starts a command on the first node.
  std::vector<std::string> entering() const {
    const std::string unshare = std::to_string(nodes_.id());
    std::string first = read_file("/proc/" + unshare + "/task/" + unshare + "/children");
    first.pop_back();  // the space after the only child
    return {"nsenter", "--target",
            first,     "--pid",
            "--mount", "--net",
            "--uts",   "--wdns=" GPUTRAIN_SOURCE_DIR,
            "env",     "SLURM_CONF=" + (folder_ / "slurm/slurm.conf")};
  }

 private:
  static std::vector<std::string> in_own_namespaces(const std::vector<std::string>& command) {
    std::vector<std::string> words{"unshare", "--fork", "--pid",        "--mount",
                                   "--net",   "--uts",  "--mount-proc", "--kill-child"};
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }

  const TemporaryFolder folder_;
  Program nodes_;
};

}  // namespace gputrain::testing_support
