#include "gputrain/launch/machine_rates.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace gputrain::launch {
namespace {

void raise(double& best, double to) { best = std::max(best, to); }

}  // namespace

double MachineRates::best_for(const Rate& rate) const {
  const auto known = best.find(rate.what);
  double most = known == best.end() ? 0 : known->second;
  for (const Rate& other : rates) {
    if (other.what == rate.what && other.of != rate.of) raise(most, other.per_second);
  }
  return most;
}

void share_best(std::vector<MachineRates>& machines) {
  const std::vector<MachineRates> before = machines;
  for (size_t i = 0; i < machines.size(); ++i) {
    for (size_t other = 0; other < before.size(); ++other) {
      if (other == i || before[other].kind != machines[i].kind) continue;
      for (const auto& [what, best] : before[other].best) raise(machines[i].best[what], best);
      for (const Rate& rate : before[other].rates) raise(machines[i].best[rate.what], rate.per_second);
    }
  }
}

std::optional<WeakestRate> weakest_of(const MachineRates& machine) {
  std::optional<WeakestRate> weakest;
  for (const Rate& rate : machine.rates) {
    const double best = machine.best_for(rate);
    const double percent = best > 0 ? 100 * rate.per_second / best : 100;
    if (!weakest || percent < weakest->percent) weakest = {.rate = rate, .percent = percent};
  }
  return weakest;
}

nlohmann::json to_json(const MachineRates& machine) {
  auto rates = nlohmann::json::array();
  for (const Rate& rate : machine.rates)
    rates.push_back({{"of", rate.of}, {"what", rate.what}, {"per_second", rate.per_second}, {"text", rate.text}});
  return {{"kind", machine.kind}, {"rates", rates}, {"best", machine.best}};
}

MachineRates machine_rates_of(const nlohmann::json& json) {
  MachineRates machine{.kind = json.at("kind"), .best = json.at("best").get<std::map<std::string, double>>()};
  for (const auto& rate : json.at("rates")) {
    machine.rates.push_back(
        {.of = rate.at("of"), .what = rate.at("what"), .per_second = rate.at("per_second"), .text = rate.at("text")});
  }
  return machine;
}

}  // namespace gputrain::launch
