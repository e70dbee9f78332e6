#include "gputrain/checkpoint/setting_aside.hpp"

#include <functional>
#include <system_error>

#include <fmt/format.h>

#include "gputrain/checkpoint/listing.hpp"
#include "places.hpp"

namespace gputrain::checkpoint {

namespace fs = std::filesystem;

fs::path set_aside(const fs::path& folder, const std::string& suffix) {
  return on_disk(folder, "cannot set a checkpoint aside", [&] {
    fs::path aside = folder.string() + "." + suffix;
    for (int number = 2; fs::exists(aside); ++number) aside = fmt::format("{}.{}-{}", folder.string(), suffix, number);
    fs::rename(folder, aside);
    return aside;
  });
}

namespace {

std::vector<SetAside> set_aside_if(const fs::path& folder, const std::function<bool(const Listed&)>& is_left) {
  std::vector<SetAside> moved;
  for (const Listed& listed : list_checkpoints(folder)) {
    if (!is_left(listed)) continue;
    moved.push_back({listed.folder, set_aside(listed.folder, "left")});
  }
  return moved;
}

}  // namespace

std::vector<SetAside> set_aside_newer(const fs::path& folder, int64_t step) {
  return set_aside_if(folder, [&](const Listed& listed) { return listed.step > step; });
}

std::vector<SetAside> set_aside_others(const fs::path& folder, const Lineage& lineage) {
  return set_aside_if(folder, [&](const Listed& listed) {
    return listed.problem.empty() && !lineage.includes(listed.lineage, listed.step);
  });
}

}  // namespace gputrain::checkpoint
