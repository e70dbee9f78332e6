// How long a job takes on machines that may be taken away: what saves, lost work and restarts add to its training.
#pragma once

#include <limits>

namespace gputrain::app {

/// Interruptions of a whole job, which come independently of each other and of what the job does.
struct Interruptions {
  double between_seconds = std::numeric_limits<double>::infinity();  // mean time between two; infinite: there are none
  double save_seconds = 0;                                           // time that training stands still for a save
  double restart_seconds = 0;                                        // from an interruption until training goes on
};

/// Returns the mean time that `training_seconds` of training take if each `save_interval` of them is followed by a
/// save, an interruption loses what came after the newest save, and a restart may be interrupted, too: with M between
/// interruptions, C for a save, R for a restart, interval T: training / T * M * e^(R/M) * (e^((T+C)/M) - 1). J. T.
/// Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006). Infinite if it
/// is too large a number: such a job makes no progress.
double expected_seconds(double training_seconds, double save_interval, const Interruptions& interruptions);

/// Time of a job with interruptions, in seconds.
struct InterruptedTime {
  double save_interval = 0;   // as checkpoint.interval: auto chooses it: Daly's, see train::best_save_interval()
  double young_interval = 0;  // Young's, to compare
  double total = 0;           // training, saves, repeated work, restarts
  double interruptions = 0;   // their expected number

  bool ends() const noexcept { return total < std::numeric_limits<double>::infinity(); }
};

InterruptedTime time_with(const Interruptions& interruptions, double training_seconds);

}  // namespace gputrain::app
