// Forecast below the start page, or as JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/estimate/dry_run_estimate.hpp"
#include "gputrain/estimate/dry_run_hosts.hpp"
#include "gputrain/monitor/console.hpp"

namespace gputrain::app {

/// Returns "predicted 25.7 GiB of 80.0 GiB: weights ...  fits".
std::string memory_text(const Memory& memory);

/// Prints the lines that follow the start page.
void print_dry_run_page(monitor::Console& console, const Job& job, const TrainingSetup& setup,
                        const DryRunEstimate& estimate, int ranks_per_host);

nlohmann::json to_json(const Job& job, const TrainingSetup& setup, const DryRunHosts& hosts,
                       const DryRunEstimate& estimate);

}  // namespace gputrain::app
