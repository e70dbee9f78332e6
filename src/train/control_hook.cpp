#include "gputrain/train/control_hook.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/numbers.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::train {
namespace {

constexpr const char* kRate = "optimizer.lr";
constexpr int64_t kMostProfiledSteps = 1000;  // a trace of each is megabytes

/// Returns the value of "optimizer.lr=1e-4"; NaN if the text is anything else.
double rate_in(const std::string& text) {
  const size_t equals = text.find('=');
  double value = 0;
  if (equals == std::string::npos || text.substr(0, equals) != kRate) return std::nan("");
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + equals + 1, end, value);
  return error == std::errc() && stop == end && value > 0 && std::isfinite(value) ? value : std::nan("");
}

std::string packed(const std::vector<Order>& orders) {
  nlohmann::json all = nlohmann::json::array();
  for (const Order& order : orders) all.push_back({order.verb, order.value, order.from});
  return all.dump();
}

std::vector<Order> unpacked(const std::string& text) {
  std::vector<Order> orders;
  for (const auto& one : nlohmann::json::parse(text))
    orders.push_back({.verb = one[0], .value = one[1].get<double>(), .from = one[2]});
  return orders;
}

/// Returns a whole number of steps from 1 to kMostProfiledSteps; else 0.
int64_t steps_in(const std::string& text) {
  int64_t steps = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, steps);
  return error == std::errc() && stop == end && steps > 0 && steps <= kMostProfiledSteps ? steps : 0;
}

}  // namespace

std::string Control::order(const std::string& verb, const std::string& argument) {
  constexpr std::array kVerbs{"save", "pause", "resume", "stop"};
  Order order{.verb = verb, .from = "gputrain ctl"};
  if (verb == "set") {
    order.value = rate_in(argument);
    if (std::isnan(order.value)) return "'" + argument + "' cannot be set; try: set optimizer.lr=1e-4\n";
  } else if (verb == "profile") {
    order.value = static_cast<double>(steps_in(argument));
    if (order.value == 0)
      return "'" + argument + "' is no number of steps from 1 to " + std::to_string(kMostProfiledSteps) +
             "; try: profile 10\n";
  } else if (std::ranges::find(kVerbs, verb) == kVerbs.end()) {
    return "'" + verb + "' is no order\n";
  }
  give(std::move(order));
  return {};
}

void Control::give(Order order) {
  const std::lock_guard lock(mutex_);
  orders_.push_back(std::move(order));
}

bool Control::has_orders() const {
  const std::lock_guard lock(mutex_);
  return !orders_.empty();
}

std::vector<Order> Control::take() {
  const std::lock_guard lock(mutex_);
  std::vector<Order> orders(orders_.begin(), orders_.end());
  orders_.clear();
  return orders;
}

Stop ControlHook::after_step(Progress& progress, const StepResult&, bool requested) {
  return requested ? follow(progress) : Stop::none;
}

/// Carries out rank 0's orders. Every rank must call.
Stop ControlHook::follow(Progress& progress) {
  const bool is_first = parts_.groups.rank() == 0;
  Stop stop = Stop::none;
  for (const Order& order :
       unpacked(parts_.groups.from_rank_zero(is_first ? packed(parts_.control.take()) : "", "orders to the run")))
    stop = std::max(stop, follow(order, progress));
  return stop;
}

Stop ControlHook::follow(const Order& order, Progress& progress) {
  if (order.verb == "save") {
    if (parts_.groups.rank() == 0) parts_.request_save();
    tell(order, "saves", progress);
  } else if (order.verb == "pause" && !is_paused_) {
    set_paused(true);
    tell(order, "pauses after step " + grouped(progress.step), progress);
  } else if (order.verb == "resume" && is_paused_) {
    set_paused(false);
    tell(order, "goes on", progress);
  } else if (order.verb == "stop") {
    set_paused(false);
    tell(order, "stops after step " + grouped(progress.step), progress);
    return Stop::ordered;
  } else if (order.verb == kEnd) {
    set_paused(false);
    tell(order, "ends after step " + grouped(progress.step), progress);
    return Stop::idle;
  } else if (order.verb == "profile" && parts_.profile.is_recording()) {
    tell(order, "records a profile already", progress);
  } else if (order.verb == "profile") {
    const auto steps = static_cast<int64_t>(order.value);
    parts_.profile.record(steps, progress);
    tell(order, "records " + counted(steps, "step") + " after step " + grouped(progress.step), progress);
  } else if (order.verb == "set") {
    set_rate(order, progress);
  }
  return Stop::none;
}

void ControlHook::set_rate(const Order& order, Progress& progress) {
  const double before = progress.ordered_rate ? progress.ordered_rate->lr : parts_.peak_lr;
  progress.ordered_rate = {.lr = order.value, .job_lr = parts_.job_lr};
  tell(order, std::string(kRate) + " " + monitor::significant(before) + " -> " + monitor::significant(order.value),
       progress, {{kOrderedRate, to_json(progress.ordered_rate)}});
}

void ControlHook::set_paused(bool is_paused) {
  is_paused_ = is_paused;
  parts_.board.set_state(is_paused ? "paused" : "training");
}

void ControlHook::tell(const Order& order, const std::string& text, const Progress& progress) {
  tell(order, text, progress, nlohmann::json::object());
}

void ControlHook::tell(const Order& order, const std::string& text, const Progress& progress,
                       const nlohmann::json& fields) {
  if (parts_.groups.rank() != 0) return;
  nlohmann::json line{{"verb", order.verb}, {"from", order.from}, {"step", progress.step}, {"text", text}};
  line.update(fields);
  parts_.ledger.append("order", line);
  parts_.reporting.recorder.log({.step = progress.step,
                                 .epoch = parts_.reporting.plan.epochs_in(progress.step),
                                 .kind = "event",
                                 .label = "order",
                                 .text = text + "  (" + order.from + ")"});
}

}  // namespace gputrain::train
