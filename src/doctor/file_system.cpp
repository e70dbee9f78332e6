#include <fstream>
#include <sstream>
#include <system_error>

#include "gputrain/doctor/rates.hpp"

namespace gputrain::doctor {

std::string file_system_of(const std::filesystem::path& folder, const std::filesystem::path& root) {
  std::error_code failure;
  const std::filesystem::path place = std::filesystem::weakly_canonical(folder, failure);
  std::ifstream mounts(root / "proc/self/mountinfo");
  std::string type;
  size_t longest = 0;
  for (std::string line; std::getline(mounts, line);) {
    // "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw"
    const size_t separator = line.find(" - ");
    std::istringstream words(line), more(separator == std::string::npos ? "" : line.substr(separator + 3));
    std::string skipped, point, name;
    words >> skipped >> skipped >> skipped >> skipped >> point;
    more >> name;
    const std::string below = point.ends_with('/') ? point : point + "/";
    if (!(place.string() + "/").starts_with(below) || below.size() < longest) continue;
    longest = below.size();  // the later one of two mounts at one place is seen
    type = name;
  }
  return type;
}

}  // namespace gputrain::doctor
