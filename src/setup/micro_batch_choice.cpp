#include "gputrain/setup/micro_batch_choice.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "gputrain/core/numbers.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {

int64_t fastest(const std::vector<MicroBatchTrial>& trials) {
  constexpr double kSurelyFaster = 1.03;
  double best = 0;
  for (const auto& trial : trials) {
    if (trial.misfit.empty()) best = std::max(best, trial.samples_per_second);
  }
  for (const auto& trial : trials) {
    if (trial.misfit.empty() && trial.samples_per_second * kSurelyFaster >= best) return trial.micro_batch;
  }
  return 0;
}

std::string MicroBatchChoice::text() const {
  const std::string size = grouped(micro_batch);
  if (trials.empty()) return size + " (auto: as found before)";
  std::string tried, misfit;
  for (const auto& trial : trials) {
    const std::string each = grouped(trial.micro_batch);
    if (trial.misfit.empty()) tried += "  " + each + ": " + monitor::compact(trial.samples_per_second) + "/s";
    if (!trial.misfit.empty()) misfit = "  " + each + ": " + trial.misfit;
  }
  return size + " (auto: fastest that fits)  samples per rank" + tried + misfit + "  in " + monitor::duration(seconds);
}

nlohmann::json MicroBatchChoice::to_json() const {
  nlohmann::json json{{"size", micro_batch}, {"found_for", found_for}};
  for (const auto& trial : trials) {
    json["tried"].push_back({{"micro_batch", trial.micro_batch},
                             {"samples_per_second", trial.samples_per_second},
                             {"peak_bytes", trial.peak_bytes},
                             {"misfit", trial.misfit}});
  }
  return json;
}

}  // namespace gputrain::app
