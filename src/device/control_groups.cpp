#include "gputrain/device/control_groups.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "lines_of_files.hpp"

namespace gputrain::device {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnlimited = int64_t{1} << 60;  // version 1 writes no limit as a number near the largest

struct MemoryFiles {
  const char *limit, *usage, *cache;  // cache: key in memory.stat
};
constexpr MemoryFiles kVersion2{"memory.max", "memory.current", "inactive_file "};
constexpr MemoryFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};

/// Returns the number in a file; -1 if the file does not exist or does not start with a number ("max").
int64_t number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = -1;
  return file >> number ? number : -1;
}

void take_memory(GroupLimits& limits, const fs::path& group, const MemoryFiles& files) {
  const int64_t limit = number_in(group / files.limit), usage = number_in(group / files.usage);
  if (limit < 0 || limit >= kUnlimited) return;
  limits.memory_bytes = std::min(limits.memory_bytes, limit);
  if (usage < 0) return;
  const int64_t room = limit - usage + number_behind(files.cache, group / "memory.stat");
  limits.room_bytes = std::min(limits.room_bytes, std::max<int64_t>(0, room));
}

void take_cores(GroupLimits& limits, double quota, double period) {
  if (quota <= 0 || period <= 0) return;
  limits.cores = std::min(limits.cores.value_or(quota / period), quota / period);
}

void take_version2(GroupLimits& limits, const fs::path& group) {
  take_memory(limits, group, kVersion2);
  std::ifstream file(group / "cpu.max");  // "max 100000" or "150000 100000"
  double quota = 0, period = 0;
  if (file >> quota >> period) take_cores(limits, quota, period);
}

void take_version1(GroupLimits& limits, const fs::path& group) {
  take_memory(limits, group, kVersion1);
  take_cores(limits, static_cast<double>(number_in(group / "cpu.cfs_quota_us")),
             static_cast<double>(number_in(group / "cpu.cfs_period_us")));
}

/// Returns the group's folder and those above it up to `root`. A container sees its own group as the root, and a name
/// that does not exist there.
std::vector<fs::path> levels(const fs::path& root, const std::string& name) {
  std::vector<fs::path> all{root};
  const fs::path below = fs::path(name).relative_path();
  if (std::find(below.begin(), below.end(), "..") != below.end()) return all;  // outside of what is seen here
  for (fs::path group = below; !group.empty(); group = group.parent_path()) all.push_back(root / group);
  return all;
}

}  // namespace

GroupLimits group_limits(const fs::path& proc, const fs::path& control_groups) {
  GroupLimits limits;
  take_version2(limits, control_groups);
  for (const char* controller : {"memory", "cpu", "cpu,cpuacct"}) take_version1(limits, control_groups / controller);
  std::ifstream file(proc / "self/cgroup");  // "0::/a/b" in version 2, "4:cpu,cpuacct:/a/b" in version 1
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), name = line.substr(second + 1);
    if (controllers.empty()) {
      for (const fs::path& group : levels(control_groups, name)) take_version2(limits, group);
      continue;
    }
    std::vector<std::string> folders{controllers};
    std::istringstream each(controllers);
    for (std::string one; std::getline(each, one, ',');) folders.push_back(one);
    for (const std::string& folder : folders) {
      if (folder.find("memory") == std::string::npos && folder.find("cpu") == std::string::npos) continue;
      for (const fs::path& group : levels(control_groups / folder, name)) take_version1(limits, group);
    }
  }
  return limits;
}

}  // namespace gputrain::device
