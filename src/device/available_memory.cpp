#include <sys/resource.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <string>

#include "gputrain/device/control_groups.hpp"
#include "gputrain/device/host.hpp"
#include "lines_of_files.hpp"

namespace gputrain::device {
namespace {

namespace fs = std::filesystem;

/// `used_kib`: the line of /proc/self/status with the usage that the limit counts.
template <class Resource>
int64_t room_under(Resource resource, const std::string& used_kib, const fs::path& proc) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT64_MAX;
  return std::max<int64_t>(0,
                           static_cast<int64_t>(limit.rlim_cur) - number_behind(used_kib, proc / "self/status") * 1024);
}

}  // namespace

int64_t number_behind(const std::string& word, const fs::path& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(word)) return std::strtoll(line.c_str() + word.size(), nullptr, 10);
  }
  return 0;
}

int64_t available_host_bytes(const fs::path& proc, const fs::path& control_groups) {
  int64_t room = number_behind("MemAvailable:", proc / "meminfo") * 1024;
  if (room == 0) room = host_memory_bytes();  // an old kernel without MemAvailable
  return std::min({room, group_limits(proc, control_groups).room_bytes, room_under(RLIMIT_AS, "VmSize:", proc),
                   room_under(RLIMIT_DATA, "VmData:", proc)});
}

}  // namespace gputrain::device
