#include "gputrain/inspect/bench.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/setup/timed_steps.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {
namespace {

/// Function that names a row along one of the four settings.
using Axis = std::function<std::string(const BenchRow&)>;

const std::array<Axis, 4>& axes() {
  static const std::array<Axis, 4> axes{
      [](const BenchRow& row) { return row.precision; },
      [](const BenchRow& row) { return "micro-batch " + std::to_string(row.micro_batch); },
      [](const BenchRow& row) { return "activation checkpointing " + row.checkpointing; },
      [](const BenchRow& row) { return "accumulation " + std::to_string(row.accumulation); }};
  return axes;
}

bool differ_in_no_other(const BenchRow& a, const BenchRow& b, size_t axis) {
  for (size_t other = 0; other < axes().size(); ++other) {
    if (other != axis && axes()[other](a) != axes()[other](b)) return false;
  }
  return true;
}

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  const double place = part * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], place - static_cast<double>(below));
}

/// Returns whether the middle halves of the rates overlap: then the difference may be chance.
bool spreads_meet(const BenchRow& a, const BenchRow& b) {
  constexpr double kLower = 0.25, kUpper = 0.75;
  return quantile(a.rates, kLower) < quantile(b.rates, kUpper) && quantile(b.rates, kLower) < quantile(a.rates, kUpper);
}

std::string comparison(const BenchRow& row, const BenchRow& with, const Axis& axis) {
  const double percent =
      100 * static_cast<double>(row.peak_bytes) / static_cast<double>(std::max<int64_t>(1, with.peak_bytes));
  std::string effect = "takes as much memory";
  if (percent < 99.5) effect = fmt::format("saves {:.0f} % memory", 100 - percent);
  if (percent >= 100.5) effect = fmt::format("takes {:.0f} % more memory", percent - 100);
  const char* doubt = spreads_meet(row, with) ? " (less than their steps vary)" : "";
  return fmt::format("{} is {:.2f}x {}{} and {}", axis(row), row.rate() / with.rate(), axis(with), doubt, effect);
}

/// Refuses samples that are neither images nor tokens, for which there is no synthetic data. All formats of gputrain
/// have one of the two; for another format, only its samples tell.
void refuse_other_samples(const Job& job) {
  constexpr std::array kOwn{"idx", "imagefolder", "synthetic", "tar", "text", "tokens"};
  if (std::ranges::find(kOwn, job.spec().data.train.format.name) != kOwn.end()) return;
  const JobDatasets datasets = open_datasets(job);
  if (datasets.tokens_per_sample() > 0 || datasets.train->layout().is_image()) return;
  throw job.loaded.error(
      "data.train.format",
      "synthetic data is images or tokens, but the samples of " + datasets.train->describe() + " are neither",
      "remove --synthetic to measure with the job's own data");
}

/// Reads a loss; null stands for NaN and infinity, which JSON does not have.
double loss_from_json(const nlohmann::json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

}  // namespace

std::vector<std::string> synthetic_data(const Job& job) {
  refuse_other_samples(job);
  std::string vocabulary, classes;
  for (const auto& setting : job.loaded.settings()) {
    if (setting.key == "model.config.vocab_size" && setting.value != "null") vocabulary = setting.value;
    if (setting.key == "model.config.num_classes" && setting.value != "null") classes = setting.value;
  }
  const std::string type = job.spec().model.architecture.name;
  if (type == "gpt" && vocabulary.empty()) {
    throw job.loaded.error("model.config.vocab_size", "synthetic data needs the number of different tokens",
                           "vocab_size: 50257");
  }
  std::string train = "format: synthetic, samples: 1048576";
  if (!vocabulary.empty()) train += ", vocab_size: " + vocabulary;
  if (!classes.empty()) train += ", num_classes: " + classes;
  return {"data.train=null", "data.train={" + train + "}", "data.val=null", "data.test=null"};
}

std::vector<std::string> BenchCombination::settings() const {
  std::vector<std::string> set{"train.max_steps=1000000000", "train.max_epochs=null", "train.max_tokens=null"};
  if (!precision.empty()) set.push_back("precision=" + precision);
  if (!checkpointing.empty()) set.push_back("train.activation_checkpointing=" + checkpointing);
  if (micro_batch == 0) return set;
  set.push_back("train.micro_batch_size=" + std::to_string(micro_batch));
  set.push_back("train.gradient_accumulation_steps=" + std::to_string(accumulation));
  set.push_back("train.global_batch_size=" + std::to_string(micro_batch * accumulation));
  set.push_back("train.global_batch_tokens=null");
  return set;
}

double BenchRow::rate() const { return median(rates); }

double BenchRow::spread() const { return (quantile(rates, 0.9) - quantile(rates, 0.1)) / (2 * rate()); }

nlohmann::json to_json(const BenchRow& row) {
  nlohmann::json json{{"precision", row.precision},
                      {"micro_batch", row.micro_batch},
                      {"activation_checkpointing", row.checkpointing},
                      {"accumulation", row.accumulation},
                      {"failure", row.failure.empty() ? nlohmann::json() : nlohmann::json(row.failure)}};
  if (!row.is_measured()) return json;
  json["unit"] = row.unit;
  json["rate"] = row.rate();
  json["spread"] = row.spread();
  json["step_seconds"] = median(row.seconds);
  json["each"] = {{"seconds", row.seconds}, {"rates", row.rates}};
  json["flops_per_second"] = row.flops_per_second;
  json["peak_flops_per_second"] = row.peak_flops_per_second;
  json["mfu"] = row.utilization() > 0 ? nlohmann::json(row.utilization()) : nlohmann::json();
  json["peak_memory_bytes"] = row.peak_bytes;
  json["first_loss"] = row.first_loss;
  json["last_loss"] = row.last_loss;
  return json;
}

BenchRow row_from_json(const nlohmann::json& json) {
  BenchRow row{.precision = json.at("precision"),
               .checkpointing = json.at("activation_checkpointing"),
               .unit = {},
               .micro_batch = json.at("micro_batch"),
               .accumulation = json.at("accumulation"),
               .failure = {},
               .seconds = {},
               .rates = {}};
  if (!json.at("failure").is_null()) {
    row.failure = json["failure"];
    return row;
  }
  row.unit = json.at("unit");
  row.seconds = json.at("each").at("seconds").get<std::vector<double>>();
  row.rates = json.at("each").at("rates").get<std::vector<double>>();
  row.flops_per_second = json.at("flops_per_second");
  row.peak_flops_per_second = json.at("peak_flops_per_second");
  row.peak_bytes = json.at("peak_memory_bytes");
  row.first_loss = loss_from_json(json.at("first_loss"));
  row.last_loss = loss_from_json(json.at("last_loss"));
  return row;
}

std::vector<std::string> comparisons(const std::vector<BenchRow>& rows) {
  std::vector<std::string> texts;
  for (size_t axis = 0; axis < axes().size(); ++axis) {
    std::vector<std::string> told;
    for (const BenchRow& row : rows) {
      const auto first = std::find_if(rows.begin(), rows.end(), [&](const BenchRow& other) {
        return other.is_measured() && differ_in_no_other(row, other, axis);
      });
      const std::string name = axes()[axis](row);
      const bool is_new = std::find(told.begin(), told.end(), name) == told.end();
      if (!row.is_measured() || first == rows.end() || axes()[axis](*first) == name || !is_new) continue;
      told.push_back(name);
      texts.push_back(comparison(row, *first, axes()[axis]));
    }
  }
  return texts;
}

}  // namespace gputrain::app
