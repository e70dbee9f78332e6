#include "plan_page.hpp"

#include <algorithm>

#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/numbers.hpp"
#include "gputrain/core/wrap.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

constexpr size_t kBest = 5;

struct NamedConstant {
  const char* name;
  const Constant& constant;
  double unit;  // value of one `unit_name`
  const char* unit_name;
};

std::vector<NamedConstant> constants_of(const ClusterRates& rates, int64_t ranks) {
  const NamedConstant compute{"compute", rates.compute, 1e12, "TFLOP/s"}, memory{"memory", rates.memory, 1e9, "GB/s"};
  if (ranks == 1) return {compute, memory};
  return {compute,
          memory,
          {"inside a host", rates.inside, 1e9, "GB/s"},
          {"between hosts", rates.between, 1e9, "GB/s"},
          {"hop inside a host", rates.inside_latency, 1e-6, "us"},
          {"hop between hosts", rates.between_latency, 1e-6, "us"},
          {"start", rates.start, 1e-6, "us"}};
}

std::string share_text(const Constant& constant) {
  if (constant.share == 1) return "";
  const bool is_measured = constant.origin.starts_with("measured");
  return fmt::format("{:.0f} %{}", 100 * constant.share, is_measured ? "" : ", assumed");
}

/// Shortens an origin, which may name a long file, to what a terminal has room for.
std::string origin_text(const Constant& constant) {
  constexpr size_t kOthers = 57;  // width of the other columns, with the spaces between
  constexpr size_t kLeast = 23;   // width of what is published
  const size_t columns = monitor::Console::detect(true).columns;
  return columns == 0 ? constant.origin : shortened(constant.origin, std::max(columns, kOthers + kLeast) - kOthers);
}

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.1f} s", seconds);
}

nlohmann::json to_json(const Constant& constant) {
  return {{"value", constant.value}, {"share", constant.share}, {"origin", constant.origin}};
}

nlohmann::json to_json(const RankMemory& memory) {
  const FixedMemory& fixed = memory.fixed;
  return {{"weights", fixed.parameters},        {"borrowed_weights", fixed.borrowed}, {"frozen_weights", fixed.frozen},
          {"working_copy", fixed.working_copy}, {"buffers", fixed.buffers},           {"gradients", fixed.gradients},
          {"optimizer", fixed.optimizer_state}, {"activations", memory.activations},  {"total", memory.bytes()}};
}

}  // namespace

std::string rate_text(const Plans& plans, const PlanRow& row) {
  const auto tokens = static_cast<double>(plans.tokens_per_sample);
  return monitor::compact(row.samples_per_second * (tokens > 0 ? tokens : 1));
}

const char* rate_unit(const Plans& plans) { return plans.tokens_per_sample > 0 ? "tokens/s" : "samples/s"; }

nlohmann::json to_json(const PlanRow& row, bool fits) {
  nlohmann::json json{{"shard", row.candidate.shard},
                      {"replicate", row.candidate.replicate},
                      {"context", row.candidate.context},
                      {"tensor", row.candidate.tensor},
                      {"pipeline", row.candidate.pipeline},
                      {"virtual_stages", row.candidate.virtual_stages},
                      {"micro_batch", row.candidate.micro_batch},
                      {"accumulation", row.candidate.accumulation},
                      {"activation_checkpointing", row.candidate.checkpointing},
                      {"fits", fits},
                      {"memory", to_json(row.memory)},
                      {"seconds",
                       {{"step", row.time.total()},
                        {"compute", row.time.compute},
                        {"between_hosts", row.time.between_hosts},
                        {"inside_host", row.time.inside_host},
                        {"memory", row.time.memory},
                        {"waiting", row.time.waiting}}},
                      {"limit", name_of(row.time.limit())},
                      {"samples_per_second", row.samples_per_second},
                      {"mfu", row.utilization},
                      {"sent_bytes_per_rank", row.wire_bytes}};
  if (row.memory_of_last_stage) json["memory_of_last_stage"] = to_json(*row.memory_of_last_stage);
  return json;
}

std::string job_line(const Job& job, const Plans& plans) {
  const std::string samples = plans.tokens_per_sample > 0 ? counted(plans.global_batch, "sample") + " of " +
                                                                grouped(plans.tokens_per_sample) + " tokens"
                                                          : counted(plans.global_batch, "sample");
  return fmt::format("job     {}  {} {} params  {}  a step: {}\n", job.name, job.spec().model.architecture.name,
                     monitor::compact(static_cast<double>(plans.parameters)), job.spec().precision, samples);
}

std::string plan_head(const Job& job, const PlanRequest& request, const Plans& plans) {
  const int64_t world = request.world_size, each = request.rates.ranks_per_host;
  std::string text = job_line(job, plans);
  text += fmt::format("gpus    {} of {}, {}; {:.0f} % of that are left to their context, NCCL and gaps\n",
                      counted(world, "rank") + (world > each ? " on " + counted(ceil_divide(world, each), "host") : ""),
                      request.rates.gpus, monitor::bytes(request.device_bytes), 100 * kKeptMemory);
  text += "memory  weights, gradients and optimizer: exact; activations: " + plans.how_activations + "\n";
  TextTable table("llrll");
  for (const NamedConstant& one : constants_of(request.rates, world)) {
    table.add({std::string(table.text().empty() ? "rates " : ""), one.name,
               monitor::significant(one.constant.value / one.unit) + " " + one.unit_name, origin_text(one.constant),
               share_text(one.constant)});
  }
  return for_terminal(text + table.text(), kLabelIndent);
}

std::string for_terminal(const std::string& text, size_t indent) {
  const size_t columns = monitor::Console::detect(true).columns;
  if (columns <= indent) return text;
  std::istringstream lines(text);
  std::string fitting;
  for (std::string line; std::getline(lines, line);) {
    const size_t first = std::min(indent, line.size());
    fitting += line.substr(0, first) + wrapped(std::string_view(line).substr(first), columns - indent, indent) + "\n";
  }
  return fitting;
}

std::string plan_table(const Plans& plans) {
  TextTable table("rllrrrlrrrrrl");
  table.add({"", "split", "shard", "replicas", "micro", "passes", "checkpointing", "memory", "sent", "step",
             rate_unit(plans), "MFU", "limit"});
  for (size_t i = 0; i < std::min(kBest, plans.fitting.size()); ++i) {
    const PlanRow& row = plans.fitting[i];
    table.add({std::to_string(i + 1), mesh_text(row.candidate), row.candidate.shard, grouped(row.candidate.replicate),
               grouped(row.candidate.micro_batch), grouped(row.candidate.accumulation), row.candidate.checkpointing,
               monitor::bytes(row.bytes()), row.wire_bytes > 0 ? monitor::bytes(row.wire_bytes) : "",
               seconds_text(row.time.total()), rate_text(plans, row), fmt::format("{:.1f} %", 100 * row.utilization),
               name_of(row.time.limit())});
  }
  const std::string rows = table.text(monitor::Console::detect(true).columns,
                                      {"replicas", "sent", "MFU", "passes", "limit", "shard", "checkpointing"});
  const std::string conclusion = fmt::format(
      "{} of {} candidates fit. All of this is predicted, nothing was run on a GPU.\nThe first one, for the "
      "job:\n\n{}",
      grouped(std::ssize(plans.fitting)), grouped(std::ssize(plans.all)), yaml_of(plans.fitting.front().candidate));
  return "\n" + rows + "\n" + for_terminal(conclusion, kTextIndent);
}

nlohmann::json plan_json(const PlanRequest& request, const Plans& plans) {
  const ClusterRates& rates = request.rates;
  nlohmann::json json{{"schema", 1},
                      {"world_size", request.world_size},
                      {"gpus", rates.gpus},
                      {"gpus_per_host", rates.ranks_per_host},
                      {"device_memory_bytes", request.device_bytes},
                      {"parameters", plans.parameters},
                      {"global_batch", plans.global_batch},
                      {"tokens_per_sample", plans.tokens_per_sample},
                      {"activations", plans.how_activations},
                      {"plans", nlohmann::json::array()},
                      {"candidates", nlohmann::json::array()}};
  json["rates"] = {{"compute", to_json(rates.compute)},
                   {"memory", to_json(rates.memory)},
                   {"inside_host", to_json(rates.inside)},
                   {"between_hosts", to_json(rates.between)},
                   {"hop_inside_host", to_json(rates.inside_latency)},
                   {"hop_between_hosts", to_json(rates.between_latency)},
                   {"start", to_json(rates.start)}};
  for (size_t i = 0; i < std::min(kBest, plans.fitting.size()); ++i)
    json["plans"].push_back(to_json(plans.fitting[i], /*fits=*/true));
  const auto limit = (1 - kKeptMemory) * static_cast<double>(request.device_bytes);
  for (const PlanRow& row : plans.all)
    json["candidates"].push_back(to_json(row, static_cast<double>(row.bytes()) <= limit));
  if (!plans.fitting.empty()) json["yaml"] = yaml_of(plans.fitting.front().candidate);
  return json;
}

}  // namespace gputrain::app
