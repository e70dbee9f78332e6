#include "gputrain/sweep/trials.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "gputrain/config/problem.hpp"
#include "gputrain/core/random.hpp"

namespace gputrain::app {
namespace {

/// Writes a number with fewer digits than a double has: people read and copy it.
std::string number_in(const SweepParameter& parameter, double place) {
  const double min = *parameter.min, max = *parameter.max;
  const double number = std::clamp(
      parameter.scale == "log" ? min * std::exp(place * std::log(max / min)) : min + place * (max - min), min, max);
  if (parameter.integer) return std::to_string(std::llround(number));
  std::string text = fmt::format("{:.4g}", number);
  const double rounded = std::stod(text);
  return rounded < min || rounded > max ? fmt::format("{}", number) : text;
}

std::string text_of(const std::optional<std::string>& value) { return value.value_or("null"); }

TrialSettings drawn(const SweepSpec& spec, uint64_t seed, uint64_t trial) {
  TrialSettings settings;
  for (const SweepParameter& parameter : spec.parameters) {
    RandomStream random(mix(seed, trial), stable_hash(parameter.key));
    settings.emplace_back(
        parameter.key,
        parameter.values.empty()
            ? number_in(parameter, random.uniform())
            : text_of(parameter.values[static_cast<size_t>(random.below(std::ssize(parameter.values)))]));
  }
  return settings;
}

/// Returns all combinations; the last parameter varies fastest.
std::vector<TrialSettings> combinations(const std::vector<SweepParameter>& parameters) {
  std::vector<TrialSettings> all{{}};
  for (const SweepParameter& parameter : parameters) {
    std::vector<TrialSettings> longer;
    for (const TrialSettings& settings : all) {
      for (const auto& value : parameter.values) {
        longer.push_back(settings);
        longer.back().emplace_back(parameter.key, text_of(value));
      }
    }
    all = std::move(longer);
  }
  return all;
}

/// Returns the values of a list, or the ends of a range, with the keys of the sweep that have them.
std::vector<std::pair<std::string, std::string>> values_to_check(const SweepParameter& parameter) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const auto& value : parameter.values)
    values.emplace_back("values[" + std::to_string(values.size()) + "]", text_of(value));
  if (values.empty()) values = {{"min", number_in(parameter, 0)}, {"max", number_in(parameter, 1)}};
  return values;
}

/// Returns what the job says to a setting beside those of a trial; empty: it takes it.
std::optional<config::Problem> mistake_in(JobRequest request, const TrialSettings& trial, const std::string& setting) {
  request.set.emplace_back("sweep=null");
  for (const auto& [key, value] : trial) request.set.push_back(key + "=" + value);
  request.set.push_back(setting);
  try {
    load_job(request);
    return std::nullopt;
  } catch (const config::SpecError& error) {
    return error.problems().front();
  }
}

}  // namespace

void check_values(const JobRequest& request, const Job& job) {
  std::vector<config::Problem> problems;
  const SweepSpec& spec = *job.spec().sweep;
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    for (const auto& [place, value] : values_to_check(spec.parameters[i])) {
      const std::string setting = spec.parameters[i].key + "=" + value;
      const auto mistake = mistake_in(request, {}, setting);
      const auto takes = [&](const TrialSettings& trial) { return !mistake_in(request, trial, setting); };
      if (!mistake || std::ranges::any_of(trial_settings(spec, static_cast<uint64_t>(job.spec().seed)), takes))
        continue;
      const auto here = job.loaded.error("sweep.parameters[" + std::to_string(i) + "]." + place,
                                         "no trial can take " + value + ": " + mistake->what, mistake->hint);
      problems.insert(problems.end(), here.problems().begin(), here.problems().end());
    }
  }
  if (!problems.empty()) throw config::SpecError(std::move(problems));
}

std::vector<TrialSettings> trial_settings(const SweepSpec& spec, uint64_t seed) {
  if (spec.method == "grid") return combinations(spec.parameters);
  std::vector<TrialSettings> all;
  for (int64_t trial = 0; trial < spec.trials.value_or(0); ++trial)
    all.push_back(drawn(spec, seed, static_cast<uint64_t>(trial)));
  return all;
}

Rungs::Rungs(const SweepSpec& spec, bool smaller_is_better)
    : first_(spec.method == "asha" ? spec.first_rung : std::numeric_limits<int64_t>::max()),
      reduction_(spec.reduction),
      smaller_is_better_(smaller_is_better) {}

std::optional<double> Rungs::best(const std::vector<double>& values) const {
  std::optional<double> best;
  for (const double value : values)
    if (std::isfinite(value) && (!best || is_better(value, *best))) best = value;
  return best;
}

bool Rungs::goes_on(const std::map<int64_t, double>& rung, double value) const {
  const auto better = std::ranges::count_if(rung, [&](const auto& one) { return is_better(one.second, value); });
  return better < std::max<int64_t>(1, std::ssize(rung) / reduction_);
}

std::optional<int64_t> Rungs::ends_after(int64_t trial, const std::vector<double>& values) {
  int64_t needed = first_;
  for (size_t rung = 0; needed <= std::ssize(values); ++rung, needed *= reduction_) {
    if (reached_.size() <= rung) reached_.resize(rung + 1);
    if (reached_[rung].contains(trial)) continue;
    const double worst = (smaller_is_better_ ? 1 : -1) * std::numeric_limits<double>::max();
    const double value = best({values.begin(), values.begin() + needed}).value_or(worst);
    reached_[rung][trial] = value;
    if (!goes_on(reached_[rung], value)) return needed;
    if (needed > std::numeric_limits<int64_t>::max() / reduction_) break;
  }
  return std::nullopt;
}

}  // namespace gputrain::app
