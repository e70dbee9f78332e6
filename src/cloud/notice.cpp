#include "gputrain/cloud/notice.hpp"

#include <algorithm>
#include <cmath>

namespace gputrain::cloud {
namespace {

// Spot machines get at most two minutes, Alibaba's five, for saving. With a longer notice, training goes on.
constexpr double kLeaveBeforeSeconds = 120;
constexpr double kSavesInHand = 2;  // margin: a save may take longer than the measured ones

}  // namespace

void NoticeSpec::describe(config::Description<NoticeSpec>& d) {
  d.summary("the cloud's notice that this machine is about to be taken away");
  d.key("action", &NoticeSpec::action,
        "save: save in time and exit with code 138, to be started again; ignore: do not poll")
      .choices({"save", "ignore"})
      .change(config::Change::safe);
  d.key("interval", &NoticeSpec::interval, "time between requests to the metadata service")
      .range(1, 60)
      .change(config::Change::safe);
}

double Notice::seconds_left() const noexcept {
  return std::max(0.0, std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count());
}

bool Notice::is_urgent(double save_seconds) const noexcept {
  return seconds_left() <= kLeaveBeforeSeconds + kSavesInHand * save_seconds;
}

std::string Notice::text() const {
  const double left = seconds_left();
  return cloud + " announces " + event + (left > 0 ? " in " + std::to_string(std::lround(left)) + " s" : " now");
}

}  // namespace gputrain::cloud
