#include "gputrain/inspect/profile_advice.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gputrain::app {
namespace {

using nlohmann::json;

// Shares of a step above which a cost is worth a sentence.
constexpr double kMuchData = 0.05, kMuchReduction = 0.10, kMuchUpdate = 0.15, kMuchBetween = 0.20, kMuchIdle = 0.20;
constexpr double kSmallOperatorSeconds = 20e-6, kUnevenRanks = 1.10;

struct WeightedAdvice {
  double share;
  std::string text;
};

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

double sum_of_self(const json& costs) {
  double sum = 0;
  for (const json& cost : costs) sum += cost.at("self_seconds").get<double>();
  return sum;
}

double calls_of(const json& costs) {
  double calls = 0;
  for (const json& cost : costs) calls += cost.at("calls").get<double>();
  return calls;
}

/// Returns the rank with the largest value.
const json& most(const json& ranks, const char* key) {
  return *std::max_element(ranks.begin(), ranks.end(), [key](const json& a, const json& b) {
    return a.at(key).get<double>() < b.at(key).get<double>();
  });
}

double share_of(const json& rank, std::initializer_list<const char*> keys) {
  double seconds = 0;
  for (const char* key : keys) seconds += rank.at(key).get<double>();
  const double all = rank.at("seconds").get<double>();
  return all > 0 ? seconds / all : 0;
}

double computing(const json& rank) {
  return rank.at("forward_seconds").get<double>() + rank.at("backward_seconds").get<double>();
}

void advise_on_data(const json& summary, std::vector<WeightedAdvice>& advice) {
  const json& rank = most(summary.at("ranks"), "data_seconds");
  const double share = share_of(rank, {"data_seconds"});
  if (share < kMuchData) return;
  const auto workers = summary.at("run").at("num_workers").get<int64_t>();
  advice.push_back({share, fmt::format("{} of a step goes by waiting for data (rank {}): raise data.num_workers (now "
                                       "{}); `gputrain bench data` says which part of reading is slow",
                                       percent(share), rank.at("rank").get<int64_t>(), workers)});
}

void advise_on_ranks(const json& summary, std::vector<WeightedAdvice>& advice) {
  const json& ranks = summary.at("ranks");
  if (ranks.size() < 2) return;
  const json& waiting = most(ranks, "reduce_seconds");
  const double share = share_of(waiting, {"reduce_seconds", "agree_seconds"});
  if (share < kMuchReduction) return;
  const auto slower = [](const json& a, const json& b) { return computing(a) < computing(b); };
  const json& slowest = *std::max_element(ranks.begin(), ranks.end(), slower);
  const json& fastest = *std::min_element(ranks.begin(), ranks.end(), slower);
  if (computing(slowest) > kUnevenRanks * computing(fastest)) {
    advice.push_back(
        {share, fmt::format("{} of a step goes by waiting for other ranks: rank {} on {} computes {:.2f} "
                            "times as long as rank {}; look there for another program or a slower device",
                            percent(share), slowest.at("rank").get<int64_t>(), slowest.at("host").get<std::string>(),
                            computing(slowest) / computing(fastest), fastest.at("rank").get<int64_t>())});
    return;
  }
  advice.push_back({share, fmt::format("{} of a step goes into exchanging gradients: larger steps exchange less often "
                                       "(train.gradient_accumulation_steps, now {}), parallel.compress makes them "
                                       "smaller; `gputrain bench comm` measures the links",
                                       percent(share), summary.at("run").at("accumulation").get<int64_t>())});
}

void advise_on_update(const json& summary, std::vector<WeightedAdvice>& advice) {
  const double share = share_of(summary.at("ranks").at(0), {"update_seconds"});
  if (share < kMuchUpdate) return;
  advice.push_back({share, fmt::format("{} of a step goes into the optimizer's update: with a larger "
                                       "train.global_batch_size (now {}) there are fewer of them",
                                       percent(share), summary.at("run").at("global_batch").get<int64_t>())});
}

void advise_on_host(const json& summary, std::vector<WeightedAdvice>& advice) {
  const double operators = sum_of_self(summary.at("operators")), calls = calls_of(summary.at("operators"));
  const double mean = calls > 0 ? operators / calls : 0, between = 1 - operators / summary.at("seconds").get<double>();
  const auto micro_batch = summary.at("run").at("micro_batch").get<int64_t>();
  if (calls > 0 && mean < kSmallOperatorSeconds) {
    advice.push_back({operators / summary.at("seconds").get<double>(),
                      fmt::format("an operator takes {:.1f} us on average, and the call itself is much of that: raise "
                                  "train.micro_batch_size (now {})",
                                  1e6 * mean, micro_batch)});
  }
  double waiting = 0;
  for (const json& range : summary.at("ranges")) {
    const auto name = range.at("name").get<std::string>();
    if (name.starts_with("wait") || name.starts_with("agree") || name.starts_with("reduce"))
      waiting += range.at("self_seconds").get<double>() / summary.at("seconds").get<double>();
  }
  if (between - waiting > kMuchBetween) {
    advice.push_back({between - waiting, fmt::format("{} of a step lies between operators, in calls that are too short "
                                                     "to count or in code without operators: raise "
                                                     "train.micro_batch_size (now {})",
                                                     percent(between - waiting), micro_batch)});
  }
}

void advise_on_gpu(const json& summary, std::vector<WeightedAdvice>& advice) {
  const double idle = 1 - share_of(summary.at("ranks").at(0), {"device_busy_seconds"});
  const double data = share_of(summary.at("ranks").at(0), {"data_seconds"});
  if (idle - data > kMuchIdle) {
    const double kernels = calls_of(summary.at("kernels")) / summary.at("steps").get<double>();
    advice.push_back(
        {idle - data, fmt::format("the GPU has nothing to do in {} of a step of {:.0f} kernels: raise "
                                  "train.micro_batch_size (now {}), and leave train.cuda_graphs on",
                                  percent(idle - data), kernels, summary.at("run").at("micro_batch").get<int64_t>())});
  }
  if (summary.at("run").at("precision") == "fp32")
    advice.push_back({1 - idle, "matrix products are in fp32: precision: bf16 or tf32 uses the GPU's tensor cores"});
}

}  // namespace

std::vector<ProfileItem> top_of_profile(const json& summary) {
  constexpr size_t kMost = 10;
  const double steps = summary.at("steps").get<double>();
  std::vector<ProfileItem> items;
  const auto add = [&](const json& costs, const char* before) {
    for (const json& cost : costs) {
      items.push_back({.name = before + cost.at("name").get<std::string>(),
                       .seconds = cost.at("self_seconds").get<double>() / steps,
                       .share = cost.at("share").get<double>(),
                       .calls = cost.at("calls").get<double>() / steps});
    }
  };
  if (!summary.at("kernels").empty()) {
    add(summary.at("kernels"), "");
  } else {
    add(summary.at("operators"), "");
    add(summary.at("ranges"), "between operators: ");
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const ProfileItem& a, const ProfileItem& b) { return a.seconds > b.seconds; });
  items.resize(std::min(items.size(), kMost));
  return items;
}

std::vector<std::string> profile_advice(const json& summary) {
  std::vector<WeightedAdvice> advice;
  if (summary.at("steps").get<int64_t>() == 0 || summary.at("ranks").empty()) return {};
  advise_on_data(summary, advice);
  advise_on_ranks(summary, advice);
  advise_on_update(summary, advice);
  summary.at("kernels").empty() ? advise_on_host(summary, advice) : advise_on_gpu(summary, advice);
  std::stable_sort(advice.begin(), advice.end(),
                   [](const WeightedAdvice& a, const WeightedAdvice& b) { return a.share > b.share; });
  std::vector<std::string> texts;
  for (WeightedAdvice& one : advice) texts.push_back(std::move(one.text));
  return texts;
}

}  // namespace gputrain::app
