#include "kernel_log_probe.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string_view>
#include <utility>

namespace gputrain::launch {
namespace {

/// Processes that the kernel has killed because memory ran out, on this machine or in this container.
int64_t count_of_kills() {
  int64_t kills = 0;
  for (const char* path : {"/proc/vmstat", "/sys/fs/cgroup/memory.events"}) {
    std::ifstream file(path);
    std::string name;
    for (int64_t value = 0; file >> name >> value;) {
      if (name == "oom_kill") kills += value;
    }
  }
  return kills;
}

/// Returns the first line of a kernel log record, without its header: "6,339,5140900,-;NVRM: Xid ..."
std::string line_text(std::string_view record) {
  const size_t begin = record.find(';');
  if (begin != std::string_view::npos) record.remove_prefix(begin + 1);
  return std::string(record.substr(0, record.find('\n')));
}

}  // namespace

KernelLogProbe::KernelLogProbe()
    : kernel_log_(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)), kills_(count_of_kills()) {
  if (kernel_log_.get() >= 0) ::lseek(kernel_log_.get(), 0, SEEK_END);
}

std::string KernelLogProbe::since_last(int id) {
  std::string sign;
  const int64_t kills = count_of_kills();
  if (kills > std::exchange(kills_, kills)) sign = "the kernel has killed a process on that host: it ran out of memory";
  std::array<char, 8192> record{};
  const std::string process = "Killed process " + std::to_string(id) + " ";
  for (ssize_t count;
       kernel_log_.get() >= 0 && (count = ::read(kernel_log_.get(), record.data(), record.size())) > 0;) {
    const std::string text = line_text({record.data(), static_cast<size_t>(count)});
    if (text.find("NVRM: Xid") != std::string::npos || text.find(process) != std::string::npos) sign = text;
  }
  return sign;
}

std::string find_oom_or_xid(const std::string& line) {
  for (const char* sign : {"Xid", "out of memory", "Out of memory", "OutOfMemory", "uncorrectable ECC"}) {
    if (line.find(sign) != std::string::npos) return line;
  }
  return {};
}

}  // namespace gputrain::launch
