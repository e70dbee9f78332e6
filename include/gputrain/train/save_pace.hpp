// checkpoint.interval: auto. Chooses the save interval from the cost of a save and from how often work is lost.
#pragma once

#include <cstdint>
#include <string>

namespace gputrain::train {

/// Attempts of a run that ended without a last save: killed, crashed, power cut. A requested stop saves and loses
/// nothing.
struct InterruptionStats {
  int64_t interruptions = 0;
  double seconds = 0;  // run time of all attempts
};

/// Returns the mean time between losses: the mean of a gamma posterior. Its prior is one loss per day of running, or
/// per four days `with_notice`, if the cloud announces preemption. The prior counts as a quarter of a loss, because a
/// few losses in little time say little.
double seconds_between_interruptions(const InterruptionStats& record, bool with_notice);

/// Return the training time between two saves that loses the least time, for saves of `cost` seconds and a mean of
/// `between` seconds between interruptions: more saves cost more, fewer leave more work to repeat. J. W. Young, "A
/// first order approximation to the optimum checkpoint interval", CACM 17 (1974): sqrt(2 cost between). J. T. Daly, "A
/// higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006), eq. 37.
double young_save_interval(double cost, double between);
double daly_save_interval(double cost, double between);

/// Returns Daly's interval within bounds: saving takes at most 5 % of the time, unless the interval would then exceed
/// half the time between losses. Between ten seconds and one hour.
double best_save_interval(double save_cost_seconds, double seconds_between_interruptions);

/// Measurements of rank 0 during training. A save costs the time for which training stops, plus the slowdown while the
/// save is written.
class SavePace {
 public:
  explicit SavePace(InterruptionStats record = {}) : record_(record) {}

  void note_step(double seconds);
  /// Notes that a save is being written from now until note_written() or note_failed().
  void note_begun() { is_writing_ = true; }
  void note_written(double stall_seconds, double write_seconds);
  void note_failed() { is_writing_ = false; }
  /// Returns whether the cloud is polled for notices. Notices help only if a save fits into the shortest one.
  void set_notices_watched(bool watched) { notices_watched_ = watched; }

  /// Returns the time from the return of one save call to the next save. The first two come early, to measure the cost.
  double interval_seconds() const;
  /// Returns "every 2m11s (auto: a save costs 100ms, work is lost once in 1d0h, presumed)"
  std::string text() const;
  /// Returns text() if the interval changed noticeably since the last news; else an empty text.
  std::string take_news();

 private:
  struct Steps {
    int64_t count = 0;
    double seconds = 0;
    double mean() const { return count > 0 ? seconds / static_cast<double>(count) : 0; }
  };
  double save_cost_seconds() const;
  double between_seconds() const;
  bool has_notice() const;

  InterruptionStats record_;
  int64_t steps_ = 0;
  Steps alone_, while_writing_;
  bool is_writing_ = false;
  bool notices_watched_ = false;
  int64_t saves_ = 0;
  double stall_seconds_ = 0, write_seconds_ = 0;  // times of a save; newer saves weigh more
  double told_seconds_ = 0;                       // the interval in the last news
};

}  // namespace gputrain::train
