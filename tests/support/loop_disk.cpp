#include "support/loop_disk.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "support/needs.hpp"

namespace gputrain::testing_support {
namespace {

/// Runs a shell command and returns the last line of its output.
std::string line_of(const std::string& command) {
  const Result result = Program({"/bin/sh", "-ec", command}).wait(30);
  if (result.exit_code != 0) throw std::runtime_error(command + ": " + result.err);
  return result.out.substr(0, result.out.find('\n'));
}

/// Of the first version, or of the second: prints the new group, or fails.
std::string making_group(const std::string& name, const std::string& device, int64_t bytes_per_second) {
  const std::string number = std::to_string(bytes_per_second);
  return "old=/sys/fs/cgroup/blkio/" + name + " new=/sys/fs/cgroup/" + name +
         "\nif [ -e /sys/fs/cgroup/blkio ]; then mkdir $old; echo \"" + device + " " + number +
         "\" > $old/blkio.throttle.write_bps_device; echo $old\nelse\n"
         "echo +io > /sys/fs/cgroup/cgroup.subtree_control; mkdir $new; echo \"" +
         device + " wbps=" + number + "\" > $new/io.max; echo $new\nfi";
}

}  // namespace

std::string LoopDisk::missing() {
  const std::string program = testing::missing_program({"losetup", "mkfs.ext4", "truncate"});
  if (!program.empty()) return program;
  const std::string name = "gt-try" + std::to_string(::getpid());
  return testing::why_not("set -e; image=$(mktemp); truncate -s 1M $image; loop=$(losetup -f --show $image)\n" +
                          ("trap 'losetup -d $loop; rm $image; rmdir /sys/fs/cgroup/blkio/" + name +
                           " /sys/fs/cgroup/" + name + " 2>/dev/null || true' EXIT\n") +
                          "{ " + making_group(name, "7:${loop#/dev/loop}", 1 << 20) + "\n} > /dev/null");
}

LoopDisk::LoopDisk(const SshHosts& hosts, int host, const std::string& folder) : hosts_(hosts), host_(host) {
  const std::string image = folder_ / "image";
  device_ = line_of("truncate -s 1G " + image + "; mkfs.ext4 -q " + image + "; losetup -f --show " + image);
  hosts.change(host, {"mount", device_, folder});
  line_of("losetup -d " + device_);  // when it is no longer mounted
}

LoopDisk::~LoopDisk() {
  if (!group_.empty()) {
    Program({"/bin/sh", "-c",
             "for each in $(cat " + group_ + "/cgroup.procs); do echo $each > " + group_ +
                 "/../cgroup.procs; done; rmdir " + group_})
        .wait(10);
  }
}

void LoopDisk::slow_down(int64_t bytes_per_second) {
  struct stat facts {};
  if (::stat(device_.c_str(), &facts) != 0) throw std::runtime_error("no device " + device_);
  const std::string number = std::to_string(major(facts.st_rdev)) + ":" + std::to_string(minor(facts.st_rdev));
  group_ =
      line_of(making_group("gt" + std::to_string(::getpid()) + "h" + std::to_string(host_), number, bytes_per_second));
  line_of("echo " + std::to_string(hosts_.server(host_)) + " > " + group_ + "/cgroup.procs");
}

}  // namespace gputrain::testing_support
