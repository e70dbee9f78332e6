// Kinds of GPUs that a job may rent, side by side: which of them suffice, how long they take, what they cost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/estimate/plan_search.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

struct GpuOffer {
  PlanRequest request;
  Plans plans;
  std::optional<double> price;  // dollars for an hour of one GPU

  bool fits() const noexcept { return !plans.fitting.empty(); }
  /// Returns the fastest settings that fit, or those that need least.
  const PlanRow& row() const { return fits() ? plans.fitting.front() : plans.smallest(); }
  double seconds() const { return plans.seconds_of(row()); }
  /// Returns the dollars of the whole job; empty without a price.
  std::optional<double> cost() const;
};

/// Returns the offers as a table, and the settings for the one to take.
std::string offers_page(const Job& job, const std::vector<GpuOffer>& offers);
nlohmann::json offers_json(const std::vector<GpuOffer>& offers);

}  // namespace gputrain::app
