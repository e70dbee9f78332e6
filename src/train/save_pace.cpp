#include "gputrain/train/save_pace.hpp"

#include <algorithm>
#include <cmath>

#include "gputrain/core/numbers.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::train {
namespace {

constexpr double kPresumedSeconds = 86400, kPresumedSecondsWithNotice = 4 * 86400;
constexpr double kPriorInterruptions = 0.25;  // weight of the prior, in losses

constexpr double kLargestShare = 0.05;  // maximum share of time spent on saving
constexpr double kShortestSeconds = 10, kLongestSeconds = 3600;

constexpr double kFirstSeconds = 10, kSecondSeconds = 60;
constexpr int64_t kWarmUpSteps = 3;            // allocates memory, chooses kernels
constexpr int64_t kStepsToCompare = 3;         // fewer steps do not show a slowdown
constexpr double kShortestNoticeSeconds = 30;  // Google's and Azure's; AWS gives two minutes
constexpr double kSavesInHand = 2;             // margin, because a save may take longer than earlier ones
constexpr double kNewsRatio = 1.3;

}  // namespace

double seconds_between_interruptions(const InterruptionStats& record, bool with_notice) {
  const double presumed = with_notice ? kPresumedSecondsWithNotice : kPresumedSeconds;
  return (kPriorInterruptions * presumed + std::max(0.0, record.seconds)) /
         (kPriorInterruptions + static_cast<double>(record.interruptions));
}

double young_save_interval(double cost, double between) { return std::sqrt(2 * cost * between); }

double daly_save_interval(double cost, double between) {
  if (cost >= 2 * between) return between;
  const double root = std::sqrt(cost / (2 * between));
  return young_save_interval(cost, between) * (1 + root / 3 + root * root / 9) - cost;
}

double best_save_interval(double save_cost_seconds, double seconds_between_interruptions) {
  const double cost = std::max(0.0, save_cost_seconds), between = seconds_between_interruptions;
  double best = daly_save_interval(cost, between);
  const double affordable = cost / kLargestShare - cost;
  best = std::max(best, std::min(affordable, between / 2));
  return std::clamp(best, kShortestSeconds, kLongestSeconds);
}

void SavePace::note_step(double seconds) {
  record_.seconds += seconds;
  if (++steps_ <= kWarmUpSteps) return;
  Steps& steps = is_writing_ ? while_writing_ : alone_;
  ++steps.count;
  steps.seconds += seconds;
}

void SavePace::note_written(double stall_seconds, double write_seconds) {
  is_writing_ = false;
  ++saves_;
  // Saves 1 and 2 replace the average: the first allocates the memory of its copy, so it is not typical.
  const double weight = saves_ <= 2 ? 1 : 0.5;
  stall_seconds_ += weight * (stall_seconds - stall_seconds_);
  write_seconds_ += weight * (write_seconds - write_seconds_);
}

double SavePace::save_cost_seconds() const {
  const bool is_comparable = alone_.count >= kStepsToCompare && while_writing_.count >= kStepsToCompare;
  const double lost_share = is_comparable ? std::max(0.0, 1 - alone_.mean() / while_writing_.mean()) : 0;
  return stall_seconds_ + lost_share * write_seconds_;
}

bool SavePace::has_notice() const { return notices_watched_ && kSavesInHand * write_seconds_ < kShortestNoticeSeconds; }

double SavePace::between_seconds() const { return seconds_between_interruptions(record_, has_notice()); }

double SavePace::interval_seconds() const {
  if (saves_ == 0) return kFirstSeconds;
  const double cost = save_cost_seconds();
  const double best = std::max(best_save_interval(cost, between_seconds()), write_seconds_);
  return saves_ == 1 ? std::min(best, std::max(kSecondSeconds, cost / kLargestShare)) : best;
}

std::string SavePace::text() const {
  std::string why = "work is lost once in " + monitor::duration(between_seconds());
  if (record_.interruptions > 0) {
    why += ", " + counted(record_.interruptions, "loss") + " in " + monitor::duration(record_.seconds);
  } else {
    why += has_notice() ? ", presumed where the cloud gives notice" : ", presumed";
  }
  if (saves_ == 0) return "auto, first after " + monitor::duration(kFirstSeconds) + " (" + why + ")";
  return "every " + monitor::duration(interval_seconds()) + " (auto: a save costs " +
         monitor::duration(save_cost_seconds()) + ", " + why + ")";
}

std::string SavePace::take_news() {
  const double now = interval_seconds();
  const bool is_news = saves_ > 0 && (now > told_seconds_ * kNewsRatio || now * kNewsRatio < told_seconds_);
  if (!is_news) return {};
  told_seconds_ = now;
  return text();
}

}  // namespace gputrain::train
