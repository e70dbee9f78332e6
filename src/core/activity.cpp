#include "gputrain/core/activity.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace gputrain {
namespace {

struct Present {
  std::mutex mutex;
  std::vector<const Activity*> activities;  // in the order in which they began
};

Present& present() {
  static auto* const all = new Present;  // never destroyed: threads may look at it until the process ends
  return *all;
}

}  // namespace

Activity::Activity(std::string label, std::string text, int64_t parts)
    : label_(std::move(label)), text_(std::move(text)), parts_(parts) {
  const std::lock_guard lock(present().mutex);
  present().activities.push_back(this);
}

Activity::~Activity() {
  const std::lock_guard lock(present().mutex);
  std::erase(present().activities, this);
}

std::optional<Activity::Seen> Activity::newest(double least_seconds) {
  const std::lock_guard lock(present().mutex);
  const auto now = std::chrono::steady_clock::now();
  const auto& all = present().activities;
  for (auto found = all.rbegin(); found != all.rend(); ++found) {
    const Activity& one = **found;
    const double seconds = std::chrono::duration<double>(now - one.begin_).count();
    if (seconds < least_seconds) continue;
    Seen seen{.label = one.label_, .text = one.text_, .seconds = seconds, .share = {}};
    if (one.parts_ > 0)
      seen.share = std::min(1.0, static_cast<double>(one.done_.load()) / static_cast<double>(one.parts_));
    return seen;
  }
  return std::nullopt;
}

}  // namespace gputrain
