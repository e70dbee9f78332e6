#include <sys/resource.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <string>

#include "gputrain/device/host.hpp"

namespace gputrain::device {
namespace {

namespace fs = std::filesystem;

/// The number in a file; -1 if the file does not exist or does not start with a number ("max").
int64_t number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = -1;
  return file >> number ? number : -1;
}

/// The number after `word` at the start of a line: "MemAvailable:   123 kB"; 0 if there is no such line.
int64_t number_behind(const std::string& word, const fs::path& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(word)) return std::strtoll(line.c_str() + word.size(), nullptr, 10);
  }
  return 0;
}

struct GroupFiles {
  const char *limit, *usage, *cache;  // cache: key in memory.stat
};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file "};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};

int64_t room_in(const fs::path& folder, const GroupFiles& files) {
  const int64_t limit = number_in(folder / files.limit), usage = number_in(folder / files.usage);
  if (limit < 0 || usage < 0) return INT64_MAX;
  return std::max<int64_t>(0, limit - usage + number_behind(files.cache, folder / "memory.stat"));
}

/// In version 2 the line is "0::/a/b"; each level may have a limit. A container sees its own group as the root.
int64_t room_in_control_groups(const fs::path& proc, const fs::path& root) {
  int64_t room = std::min(room_in(root, kVersion2), room_in(root / "memory", kVersion1));
  std::ifstream file(proc / "self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::/")) continue;
    for (fs::path group = line.substr(4); !group.empty(); group = group.parent_path()) {
      room = std::min(room, room_in(root / group, kVersion2));
    }
  }
  return room;
}

/// `used_kib`: the line of /proc/self/status with the usage that the limit counts.
template <class Resource>
int64_t room_under(Resource resource, const std::string& used_kib, const fs::path& proc) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT64_MAX;
  return std::max<int64_t>(0,
                           static_cast<int64_t>(limit.rlim_cur) - number_behind(used_kib, proc / "self/status") * 1024);
}

}  // namespace

int64_t available_host_bytes(const fs::path& proc, const fs::path& control_groups) {
  int64_t room = number_behind("MemAvailable:", proc / "meminfo") * 1024;
  if (room == 0) room = host_memory_bytes();  // an old kernel without MemAvailable
  return std::min({room, room_in_control_groups(proc, control_groups), room_under(RLIMIT_AS, "VmSize:", proc),
                   room_under(RLIMIT_DATA, "VmData:", proc)});
}

}  // namespace gputrain::device
