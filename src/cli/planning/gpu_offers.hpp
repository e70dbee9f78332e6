// Kinds of GPUs that a job may rent, side by side: which of them suffice, how long they take, what they cost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/estimate/plan_search.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Reason why a kind of GPU is not counted.
struct Obstacle {
  std::string what;      // what the kind has not: "no bf16 units"
  std::string option;    // option with which it is counted; empty: none
  std::string measured;  // measurements with which it is counted
};

struct GpuOffer {
  PlanRequest request;
  Plans plans;                       // nothing if there is an obstacle
  std::optional<double> price;       // dollars for an hour of one GPU
  std::optional<Obstacle> obstacle;  // empty: it is counted

  bool fits() const noexcept { return !plans.fitting.empty(); }
  /// Returns the fastest settings that fit, or those that need least.
  const PlanRow& row() const { return fits() ? plans.fitting.front() : plans.smallest(); }
  double seconds() const { return plans.seconds_of(row()); }
  /// Returns the dollars of the whole job; empty without a price.
  std::optional<double> cost() const;
};

/// Returns the offers as a table, and the settings for the one to take. At least one of them is counted.
std::string offers_page(const Job& job, const std::vector<GpuOffer>& offers);
nlohmann::json offers_json(const std::vector<GpuOffer>& offers);

}  // namespace gputrain::app
