#include "gputrain/monitor/short_names.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

namespace gputrain::monitor {
namespace {

using Parts = std::vector<std::string>;

Parts parts_of(const std::string& path) {
  Parts parts;
  for (const auto& part : std::filesystem::absolute(path).lexically_normal())
    if (!part.empty()) parts.push_back(part.string());
  return parts;
}

}  // namespace

std::vector<std::string> short_names(const std::vector<std::string>& paths) {
  std::vector<Parts> all;
  for (const std::string& path : paths) all.push_back(parts_of(path));
  const auto share = [&](const auto& part_of) {  // a part that every path has, besides its last one
    return std::ranges::all_of(
        all, [&](const Parts& parts) { return parts.size() > 1 && part_of(parts) == part_of(all[0]); });
  };
  while (share([](const Parts& parts) { return parts.front(); }))
    for (Parts& parts : all) parts.erase(parts.begin());
  while (all.size() > 1 && share([](const Parts& parts) { return parts.back(); }))
    for (Parts& parts : all) parts.pop_back();
  std::vector<std::string> names;
  std::map<std::string, int> known;
  for (const Parts& parts : all) {
    std::string name;
    for (const std::string& part : parts) name += (name.empty() ? "" : "/") + part;
    const int number = ++known[name];
    names.push_back(number > 1 ? name + " (" + std::to_string(number) + ")" : name);
  }
  return names;
}

}  // namespace gputrain::monitor
