#include "gputrain/resume/record.hpp"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "gputrain/chat/local_time.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/device/fault.hpp"
#include "gputrain/device/out_of_memory.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/resume/attempt_history.hpp"
#include "gputrain/resume/checkpointing.hpp"
#include "gputrain/setup/versions.hpp"
#include "gputrain/train/control_hook.hpp"

namespace gputrain::app {

nlohmann::json to_json(const data::SampleUsage& usage) {
  return {{"samples", usage.samples},
          {"fingerprint", fmt::format("{:016x}", usage.fingerprint)},
          {"unreadable", usage.unreadable}};
}

data::SampleUsage usage_from_json(const nlohmann::json& json) {
  return {.samples = json.at("samples").get<int64_t>(),
          .fingerprint = std::stoull(json.at("fingerprint").get<std::string>(), nullptr, 16),
          .unreadable = json.value("unreadable", int64_t{0})};  // older ledgers do not say
}

nlohmann::json to_json(const data::OrderFacts& order) {
  return {
      {"samples", order.samples},       {"global_batch", order.global_batch}, {"seed", order.seed},
      {"shuffle", order.shuffle},       {"drop_last", order.drop_last},       {"repeats", order.repeats},
      {"first_step", order.first_step}, {"epoch", order.from.epoch},          {"epoch_samples", order.from.samples}};
}

data::OrderFacts order_from_json(const nlohmann::json& json) {
  const data::OrderFacts order{
      .samples = json.at("samples").get<int64_t>(),
      .global_batch = json.at("global_batch").get<int64_t>(),
      .seed = json.at("seed").get<uint64_t>(),
      .shuffle = json.at("shuffle").get<bool>(),
      .drop_last = json.at("drop_last").get<bool>(),
      .repeats = json.value("repeats", int64_t{1}),  // older ledgers do not say
      .first_step = json.at("first_step").get<int64_t>(),
      .from = {.epoch = json.at("epoch").get<int64_t>(), .samples = json.at("epoch_samples").get<int64_t>()}};
  if (!data::is_reachable(order)) throw std::domain_error("a place outside the data");
  return order;
}

std::string reason_of(const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  std::string reason = failure.what();
  if (error != nullptr)
    reason = (error->parts().where.empty() ? "" : error->parts().where + ": ") + error->parts().what;
  return reason.substr(0, reason.find('\n'));  // the rest is for the console
}

int exit_code_of(const std::exception& failure) {
  if (const auto* error = dynamic_cast<const Error*>(&failure)) return static_cast<int>(error->code());
  if (device::shortage_of(failure)) return static_cast<int>(ExitCode::environment);
  return static_cast<int>(device::fault_of(failure) ? ExitCode::restart : ExitCode::internal);
}

DataIdentity identity_of(const TrainingSetup& setup) {
  const data::Dataset& dataset = *setup.datasets.train;
  std::string names;
  for (const auto& name : data::target_names(dataset)) names += name + '\0';
  return {.samples = dataset.size(),
          .target_names = names.empty() ? 0 : stable_hash(names),
          .content = setup.context.rank() == 0 ? data::content_digits(dataset) : ""};
}

DataIdentity identity_before(const std::vector<nlohmann::json>& ledger) {
  const nlohmann::json::json_pointer samples("/order/samples");
  for (auto line = ledger.rbegin(); line != ledger.rend(); ++line) {
    if (json_value(*line, "kind", "") != "attempt") continue;
    const auto digits = [&](const char* key) {
      const auto found = line->find(key);
      return found != line->end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    DataIdentity identity{.target_names = std::strtoull(digits("target_names").c_str(), nullptr, 16),
                          .content = digits("content")};
    if (line->contains(samples) && line->at(samples).is_number_integer())
      identity.samples = line->at(samples).get<int64_t>();
    return identity;
  }
  return {};
}

nlohmann::json attempt_record(const Job& job, const TrainingSetup& setup, const train::Progress& progress,
                              const DataIdentity& identity) {
  nlohmann::json record{{"attempt", progress.attempts},
                        {"run_id", job.run_id},
                        {"spec_hash", job.spec_hash},
                        {"version", version()},
                        {"process", ::getpid()},
                        {"host", setup.context.groups.hosts().empty() ? "" : setup.context.groups.hosts().front()},
                        {"world_size", setup.context.groups.world_size()},
                        {"device", setup.context.device.is_cpu() ? "cpu" : device::facts_of(setup.context.device).name},
                        {"threads", setup.context.threads.count},
                        {"step", progress.step},
                        {train::kOrderedRate, train::to_json(progress.ordered_rate)},
                        {"data", to_json(progress.usage)},
                        {"order", to_json(order_facts(job.spec(), setup))},
                        {chat::kLocalTime, chat::text_of(chat::local_time())}};
  if (const std::string metric = watched_metric_of(job.spec(), setup.datasets); !metric.empty())
    record["main_metric"] = metric;
  if (!setup.plan.is_time_limited()) record["planned_steps"] = setup.plan.total_steps;
  if (identity.target_names != 0) record["target_names"] = fmt::format("{:016x}", identity.target_names);
  if (!identity.content.empty()) record["content"] = identity.content;
  if (setup.micro_batch.micro_batch > 0) record["micro_batch"] = setup.micro_batch.to_json();
  return record;
}

nlohmann::json end_record(const monitor::Summary& summary, const train::Progress& progress) {
  return {{"attempt", progress.attempts}, {"step", progress.step},    {"data", to_json(progress.usage)},
          {"status", summary.status},     {"reason", summary.reason}, {"exit_code", summary.exit_code}};
}

int64_t attempts_in(const std::vector<nlohmann::json>& ledger) {
  int64_t lines = 0, highest = 0;
  for (const auto& line : ledger) {
    if (json_value(line, "kind", "") != "attempt") continue;
    ++lines;
    const auto number = line.find("attempt");
    if (number != line.end() && number->is_number_integer()) highest = std::max(highest, number->get<int64_t>());
  }
  return std::max(lines, highest);
}

Stuck stuck_at(const std::vector<nlohmann::json>& ledger, int64_t step) {
  Stuck stuck;
  bool is_open = false;  // the newest attempt has no end so far: it was killed
  for (const auto& line : ledger) {
    const std::string kind = json_value(line, "kind", "");
    if (kind == "attempt") {
      if (json_value(line, "step", int64_t{-1}) != step) stuck = {};
      ++stuck.attempts;
      stuck.reason = "killed";
      is_open = true;
    } else if (kind == "end" && is_open) {
      const int code = json_value(line, "exit_code", 0);
      stuck.reason = json_value(line, "reason", "");
      const bool is_wanted = code == static_cast<int>(ExitCode::done) ||
                             code == static_cast<int>(ExitCode::interrupted) ||
                             code == static_cast<int>(ExitCode::terminated);
      if (is_wanted) stuck = {};
      is_open = false;
    } else if (kind == "checkpoint" && json_value(line, "step", int64_t{0}) > step) {
      stuck = {};
    }
  }
  return stuck;
}

train::InterruptionStats interruptions_in(const std::vector<nlohmann::json>& ledger) {
  train::InterruptionStats record;
  bool is_open = false;
  const nlohmann::json* before = nullptr;
  for (const auto& line : ledger) {
    const std::string kind = json_value(line, "kind", "");
    if (kind == "attempt") {
      if (is_open) ++record.interruptions;
      is_open = true;
    } else if (is_open) {
      record.seconds += seconds_between(*before, line);  // up to its last sign of life
    }
    before = &line;
    if (kind != "end") continue;
    const auto status = line.find("status");
    if (is_open && status != line.end() && *status == "failed") ++record.interruptions;
    is_open = false;
  }
  if (is_open) ++record.interruptions;  // killed
  return record;
}

}  // namespace gputrain::app
