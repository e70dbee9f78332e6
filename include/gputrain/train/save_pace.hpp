// checkpoint.interval: auto. How often to save, from what a save costs and how often work is lost.
#pragma once

#include <cstdint>
#include <string>

namespace gputrain::train {

/// Attempts of a run that ended without a last save: killed, crashed, without power. Who is told to stop saves, and
/// loses nothing.
struct LossRecord {
  int64_t losses = 0;
  double seconds = 0;  // that all attempts ran
};

/// The mean time between losses. A few losses in little time say little, so they are weighed against a presumption:
/// one loss in a day of running, or in four days `with_notice`, where the cloud says before it takes the machine. It
/// counts as much as a quarter of a loss in that share of the time (the mean of a gamma posterior).
double seconds_between_losses(const LossRecord& record, bool with_notice);

/// The time of training between two saves that loses least: more saves cost more, fewer leave more to be done again.
/// J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974), sqrt(2 cost between);
/// J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006), eq. 37.
/// Never so short that saving takes more than 5 % of the time, unless training would then hardly come from one loss to
/// the next; from ten seconds to one hour.
double best_save_interval(double save_cost_seconds, double seconds_between_losses);

/// What rank 0 learns while it trains. A save costs the time for which training stands still, and what it is slowed
/// down by while the save is written.
class SavePace {
 public:
  explicit SavePace(LossRecord record = {}) : record_(record) {}

  void note_step(double seconds);
  /// From here to its end a save is being written.
  void note_begun() { is_writing_ = true; }
  void note_written(double stall_seconds, double write_seconds);
  void note_failed() { is_writing_ = false; }
  /// Whether the cloud is asked for its notices. They help only if a save fits into the shortest.
  void set_notices_watched(bool watched) { notices_watched_ = watched; }

  /// From the end of the call that begins a save to the next. The first two come early, to be measured.
  double interval_seconds() const;
  /// "every 2m11s (auto: a save costs 100ms, work is lost once in 1d0h, presumed)"
  std::string text() const;
  /// text() when it says something new; empty: it does not.
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

  LossRecord record_;
  int64_t steps_ = 0;
  Steps alone_, while_writing_;
  bool is_writing_ = false;
  bool notices_watched_ = false;
  int64_t saves_ = 0;
  double stall_seconds_ = 0, write_seconds_ = 0;  // of a save, the newer ones counting more
  double told_seconds_ = 0;                       // the interval of the last news
};

}  // namespace gputrain::train
