#include "gputrain/inspect/plan_rates.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/device/gpu_systems.hpp"
#include "gputrain/device/peak_rates.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/estimate/step_time.hpp"
#include "gputrain/inspect/bench.hpp"
#include "gputrain/job/job_spec.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::app {
namespace {

// Shares of published rates that are reached. Compute: GPT-2 124M and ResNet-50 on an H100, in scripts/gpu/README.md.
// The others are usual for large copies and NCCL's large messages.
constexpr double kOfCompute = 0.46, kOfConvolutions = 0.14, kOfMemory = 0.8, kOfLinks = 0.8;
// Seconds of a hop and of a start in a ring, in NCCL's own model (src/graph/tuning.cc, protocol Simple).
constexpr double kHopInside = 3.4e-6, kHopBetween = 14e-6, kStart = 8.4e-6;

nlohmann::json read_report(const std::string& file, const char* command) {
  auto json = parse_json_file(file);
  if (json.is_object() && json.contains("rows") && json["rows"].is_array()) return json;
  throw Error(ExitCode::usage,
              {.what = std::filesystem::exists(file) ? "is not what `gputrain " + std::string(command) + "` prints"
                                                     : std::string("cannot be read"),
               .where = file,
               .hint = "gputrain " + std::string(command) + " > FILE"});
}

[[noreturn]] void refuse_file(const std::string& file, std::string what, std::string hint) {
  throw Error(ExitCode::usage, {.what = std::move(what), .where = file, .hint = std::move(hint)});
}

device::GpuSystem system_of(const RateSources& sources, const std::string& measured_device, std::string& gpus) {
  if (!sources.gpus.empty()) {
    if (const auto system = device::gpu_system(sources.gpus)) return gpus = system->name, *system;
    throw Error(ExitCode::usage,
                {.what = "the rates of --gpus " + sources.gpus + " are not known",
                 .hint = fmt::format("one of {}; or the nearest of them, with measured files by --bench-train and "
                                     "--bench-comm",
                                     fmt::join(device::gpu_system_names(), ", "))});
  }
  std::string here = measured_device;
  if (here.empty() && device::gpu_count() > 0) here = device::facts_of(device::choose_device("cuda", 0)).name;
  if (const auto system = device::gpu_system(here)) return gpus = system->name, *system;
  gpus = "h100, as --gpus names none";
  return *device::gpu_system("h100");
}

/// Returns the rate of the best row, including the operations that checkpointing of blocks repeats.
Constant measured_compute(const nlohmann::json& report, const std::string& file, const std::string& precision,
                          double published) {
  Constant best;
  for (const auto& json : report["rows"]) {
    BenchRow row;
    try {
      row = row_from_json(json);
    } catch (const nlohmann::json::exception&) {
      refuse_file(file, "is not what `gputrain bench train --json` prints",
                  "gputrain bench train job.yaml --json > FILE");
    }
    if (!row.is_measured() || row.precision != precision || row.flops_per_second <= 0) continue;
    const double reached = row.flops_per_second * (row.checkpointing == "block" ? 4.0 / 3 : 1);
    if (reached <= best.reached()) continue;
    best.value = std::max({published, row.peak_flops_per_second, reached});
    best.share = reached / best.value;
  }
  if (best.value == 0)
    refuse_file(file, "has no step in " + precision,
                "gputrain bench train job.yaml --precision " + precision + " --json");
  best.origin = "measured, " + file;
  return best;
}

/// Takes the best bandwidth of all sizes, and the latency of the smallest all-gather, which takes n - 1 hops.
void take_measured_links(ClusterRates& rates, const std::string& file) {
  const nlohmann::json report = read_report(file, "bench comm --json");
  try {
    const auto ranks = report.at("ranks").get<int64_t>();
    const auto names = report.at("hosts").get<std::vector<std::string>>();
    const auto hosts = static_cast<int64_t>(std::set<std::string>(names.begin(), names.end()).size());
    if (ranks < 2 || hosts < 1) refuse_file(file, "is of one rank", "two ranks or more");
    double rate = 0, seconds = 0, least = 0;
    for (const auto& row : report["rows"]) {
      const std::string collective = row.at("collective");
      if (collective == "all_gather" || collective == "all_reduce")
        rate = std::max(rate, row.at("busbw").get<double>());
      const double bytes = row.at("bytes");
      if (collective != "all_gather" || (least > 0 && bytes >= least)) continue;
      least = bytes;
      seconds = row.at("seconds");
    }
    if (rate <= 0 || seconds <= 0)
      refuse_file(file, "has no all_gather", "gputrain bench comm --json, of all collectives");
    const std::string origin = "measured, " + file;
    const auto hop_count = [](int64_t hops) { return static_cast<double>(std::max<int64_t>(1, hops)); };
    rates.start = {.value = 0, .origin = "measured, with the hops"};
    if (hosts == 1) {
      rates.inside = {.value = rate, .origin = origin};
      rates.inside_latency = {.value = seconds / hop_count(ranks - 1), .origin = origin};
      return;
    }
    const double inside = static_cast<double>(ranks - hosts) * rates.inside_latency.value;
    rates.between = {.value = rate / hop_count(ranks / hosts), .origin = origin};
    rates.between_latency = {.value = std::max(0.0, seconds - inside) / hop_count(hosts - 1), .origin = origin};
  } catch (const nlohmann::json::exception&) {
    refuse_file(file, "is not what `gputrain bench comm --json` prints", "gputrain bench comm --json > FILE");
  }
}

}  // namespace

ClusterRates plan_rates(const RateSources& sources, const JobSpec& spec) {
  const std::string& precision = spec.precision;
  nlohmann::json trained;
  std::string measured_device;
  if (!sources.bench_train.empty()) {
    trained = read_report(sources.bench_train, "bench train --json");
    if (const auto machine = trained.find("machine"); machine != trained.end() && machine->is_object())
      measured_device = machine->value("device", "");
  }
  ClusterRates rates{.ranks_per_host = sources.gpus_per_host};
  const device::GpuSystem system = system_of(sources, measured_device, rates.gpus);
  const double peak = device::peak_rate(system.device, precision).value_or(0);
  const std::string sheet = "published, data sheet", server = "published, " + std::string(system.server);
  if (!sources.bench_train.empty()) {
    rates.compute = measured_compute(trained, sources.bench_train, precision, peak);
  } else if (peak > 0) {
    const bool is_of_texts = models::catalog().reads(spec.model.architecture).reads_tokens();
    rates.compute = {.value = peak, .share = is_of_texts ? kOfCompute : kOfConvolutions, .origin = sheet};
  }
  rates.memory = {.value = system.memory, .share = kOfMemory, .origin = sheet};
  rates.inside = {.value = system.inside, .share = kOfLinks, .origin = sheet};
  rates.between = {.value = system.between, .share = kOfLinks, .origin = server};
  rates.inside_latency = {.value = kHopInside, .origin = "published, NCCL's model"};
  rates.between_latency = {.value = kHopBetween, .origin = "published, NCCL's model"};
  rates.start = {.value = kStart, .origin = "published, NCCL's model"};
  auto files = sources.bench_comm;
  // Files of one host come first: their latency of a hop is needed for those of several.
  std::ranges::stable_sort(files, {}, [](const std::string& file) {
    const auto report = read_report(file, "bench comm --json");
    const auto hosts = report.value("hosts", std::vector<std::string>());
    return std::set<std::string>(hosts.begin(), hosts.end()).size();
  });
  for (const std::string& file : files) take_measured_links(rates, file);
  return rates;
}

}  // namespace gputrain::app
