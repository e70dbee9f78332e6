#include "gputrain/doctor/best_rates.hpp"

#include <algorithm>
#include <system_error>

#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"

namespace gputrain::doctor {
namespace {

std::filesystem::path state_file(const Lookup& lookup) {
  const auto state = lookup("XDG_STATE_HOME"), home = lookup("HOME");
  if (state && state->starts_with('/')) return std::filesystem::path(*state) / "gputrain/machines.json";
  if (!home || !home->starts_with('/')) return {};
  return std::filesystem::path(*home) / ".local/state/gputrain/machines.json";
}

nlohmann::json kinds_in(const std::filesystem::path& file) {
  const auto json = parse_json_file(file);
  return json.is_object() && json.contains("kinds") && json.at("kinds").is_object() ? json.at("kinds")
                                                                                    : nlohmann::json::object();
}

}  // namespace

BestRates::BestRates(const Lookup& lookup) : file_(state_file(lookup)) {}

std::map<std::string, double> BestRates::of(const std::string& kind) const {
  std::map<std::string, double> best;
  const auto kinds = kinds_in(file_);
  if (!kinds.contains(kind) || !kinds.at(kind).is_object()) return best;
  for (const auto& [what, rate] : kinds.at(kind).items()) {
    if (rate.is_number() && rate.get<double>() > 0) best[what] = rate.get<double>();
  }
  return best;
}

std::string BestRates::keep(const launch::MachineRates& machine) const {
  if (file_.empty()) return "HOME is not set";
  std::error_code failure;
  std::filesystem::create_directories(file_.parent_path(), failure);
  if (failure) return file_.parent_path().string() + ": " + failure.message();
  auto best = of(machine.kind);
  for (const launch::Rate& rate : machine.rates) best[rate.what] = std::max(best[rate.what], rate.per_second);
  auto kinds = kinds_in(file_);
  kinds[machine.kind] = best;
  try {
    write_file_atomically(file_, nlohmann::json{{"schema", 1}, {"kinds", kinds}}.dump(2) + "\n", ExitCode::environment);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace gputrain::doctor
