// Follows a run's alerts in a thread of its own, so that a hanging run gives alerts too.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "gputrain/monitor/alerts.hpp"
#include "gputrain/monitor/board.hpp"
#include "gputrain/train/control_hook.hpp"

namespace gputrain::app {

/// Looks at the board once a second. Warns when an alert fires and when it is over, shows it on the board, gives the
/// order or starts the program that it asks for, and records it as an event of the run.
class AlertWatch {
 public:
  struct Cost {
    double per_second = 0;       // 0: unknown
    double earlier_seconds = 0;  // time of earlier attempts
  };
  struct Parts {
    std::vector<monitor::AlertSpec> alerts;
    monitor::Board& board;
    train::Control& control;
    train::Reporting reporting;  // the recorder also shows the board its records
    std::filesystem::path folder;
    Cost cost;
    int64_t first_step = 0;            // step at which the attempt starts
    monitor::Sink* webhook = nullptr;  // gets alerts too; null: there is none
  };
  explicit AlertWatch(Parts parts);
  AlertWatch(const AlertWatch&) = delete;
  AlertWatch& operator=(const AlertWatch&) = delete;
  ~AlertWatch();

 private:
  void run();
  void look();
  void act(const monitor::AlertRules::Change& change, int64_t step);
  void start_program(const monitor::AlertRules::Change& change);
  void note_cost();
  void note_ended_programs();

  Parts parts_;
  monitor::AlertRules rules_;
  std::vector<pid_t> programs_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread thread_;  // last
};

}  // namespace gputrain::app
