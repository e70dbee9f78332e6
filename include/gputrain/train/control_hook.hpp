// Orders to a run that is going on: `gputrain ctl`, and the actions of alerts.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/monitor/board.hpp"
#include "gputrain/train/hooks.hpp"
#include "gputrain/train/profile_hook.hpp"

namespace gputrain::train {

/// The order of limits.idle: save and end, and do not start again.
constexpr const char* kEnd = "end";

/// The key in the ledger of a rate that an order has set: in the order's line, and in that of each attempt.
constexpr const char* kOrderedRate = "ordered_rate";

/// One order: "save", "pause", "resume", "stop", kEnd, "profile" with a number of steps, or "set" with a learning rate.
struct Order {
  std::string verb;
  double value = 0;
  std::string from;  // its origin: "gputrain ctl", "alert 'gpu/temperature_celsius > 85'"
};

/// Takes orders from any thread, and keeps them for the training thread.
class Control {
 public:
  /// Takes an order as text: for "set", `argument` is "optimizer.lr=1e-4", for "profile" "10". Returns why it is
  /// refused; empty: it is taken.
  std::string order(const std::string& verb, const std::string& argument);
  void give(Order order);

  bool has_orders() const;
  std::vector<Order> take();

 private:
  mutable std::mutex mutex_;
  std::deque<Order> orders_;
};

/// Carries out orders between two steps, on all ranks at the same step.
class ControlHook final : public Hook {
 public:
  struct Parts {
    Control& control;  // only rank 0's counts
    comm::ProcessGroups& groups;
    Reporting reporting;
    monitor::Board& board;
    monitor::Ledger& ledger;
    double peak_lr = 0, job_lr = 0;      // the peak of the job's schedule, and its optimizer.lr
    std::function<void()> request_save;  // on rank 0
    ProfileHook& profile;
  };
  explicit ControlHook(Parts parts) : parts_(std::move(parts)) {}

  Stop after_step(Progress& progress, const StepResult& result, bool requested) override;
  bool will_act(const Progress&, bool requested) const override { return requested; }
  bool is_due() const override { return parts_.control.has_orders(); }
  bool is_holding() const override { return is_paused_; }
  Stop while_held(Progress& progress, bool requested) override { return requested ? follow(progress) : Stop::none; }

 private:
  Stop follow(Progress& progress);
  Stop follow(const Order& order, Progress& progress);
  void set_rate(const Order& order, Progress& progress);
  void set_paused(bool is_paused);
  void tell(const Order& order, const std::string& text, const Progress& progress);
  /// Tells of an order. `fields`: those that the line in the ledger has besides.
  void tell(const Order& order, const std::string& text, const Progress& progress, const nlohmann::json& fields);

  Parts parts_;
  bool is_paused_ = false;
};

}  // namespace gputrain::train
