// Command `gputrain plan`: finds the settings of a job that train fastest on GPUs that nobody has rented yet.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "device_memory.hpp"
#include "gpu_offers.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/gpu_systems.hpp"
#include "gputrain/device/peak_rates.hpp"
#include "gputrain/inspect/plan_rates.hpp"
#include "gputrain/job/job_environment.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/setup/compatibility.hpp"
#include "plan_page.hpp"
#include "price_file.hpp"
#include "rents.hpp"

namespace gputrain::app {
namespace {

[[noreturn]] void refuse_what_does_not_fit(const PlanRequest& request, const Plans& plans) {
  const PlanRow& nearest = plans.smallest();
  const PlanCandidate& candidate = nearest.candidate;
  const std::string mesh = mesh_text(candidate);
  const double needed = static_cast<double>(nearest.bytes()) / (1 - kKeptMemory);
  const std::string memory = fmt::format("--device-memory {:.0f}GiB", std::ceil(needed / 0x1p30));
  const std::string ranks = plans.ranks_that_would_fit > 0
                                ? fmt::format(", or --world-size {}", plans.ranks_that_would_fit)
                                : std::string("; more ranks do not help, as activations of one sample are too many");
  throw Error(
      ExitCode::environment,
      {.what = fmt::format("nothing fits into {}: the nearest, shard {}{} with a micro-batch of {} and activation "
                           "checkpointing {}, needs {} ({} of activations), and {:.0f} % for other things",
                           monitor::bytes(request.device_bytes), candidate.shard, mesh.empty() ? "" : ", " + mesh + ",",
                           grouped(candidate.micro_batch), candidate.checkpointing, monitor::bytes(nearest.bytes()),
                           monitor::bytes(nearest.most_memory().activations), 100 * kKeptMemory),
       .hint = memory + ranks});
}

/// A kind of GPU as --gpus names it.
struct NamedGpu {
  std::string name;             // empty: --gpus names none
  std::optional<double> price;  // dollars for an hour
};

NamedGpu read_gpu(const std::string& text) {
  const size_t sign = text.find('=');
  NamedGpu gpu{.name = text.substr(0, sign), .price = {}};
  if (sign == std::string::npos) return gpu;
  double price = 0;
  const char *const begin = text.data() + sign + 1, *const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(begin, end, price);
  if (gpu.name.empty() || failure != std::errc() || rest != end || !(price >= 0 && price < 1e6)) {
    throw Error(ExitCode::usage, {.what = "--gpus " + text + " is not a kind of GPU with the dollars of an hour",
                                  .hint = "--gpus 4090=0.40,h100=2.50"});
  }
  gpu.price = price;
  return gpu;
}

/// Returns the GPUs of --gpus, or those of the file of prices, which gives their least price on demand.
std::vector<NamedGpu> named_gpus(const PlanCommand& command, const std::optional<PriceFile>& prices) {
  std::vector<NamedGpu> gpus;
  for (const std::string& text : command.gpus) gpus.push_back(read_gpu(text));
  if (gpus.empty() && prices)
    for (const std::string& name : prices->gpus()) gpus.push_back({.name = name, .price = {}});
  if (gpus.empty()) gpus.emplace_back();
  for (NamedGpu& gpu : gpus) {
    if (!prices) break;
    if (gpu.price) {
      throw Error(ExitCode::usage, {.what = "--gpus gives a price of " + gpu.name + ", and --prices is given, too",
                                    .hint = "--gpus " + gpu.name + ", with the price in the file"});
    }
    gpu.price = prices->cheapest_on_demand(gpu.name);
  }
  return gpus;
}

std::string kind_of(const PlanRequest& request) {
  return request.rates.gpus.substr(0, request.rates.gpus.find(','));  // "h100, as --gpus names none"
}

/// Returns the option for a precision that GPUs of this kind have and the job goes with; empty: there is none.
std::string other_precision(const std::string& kind, const JobSpec& spec) {
  const std::string_view gpu = device::gpu_system(kind)->device;
  const size_t broken = broken_rules(features_of(spec)).size();
  for (const char* const precision : {"bf16", "fp16", "fp32"}) {
    JobSpec other = spec;
    other.precision = precision;
    if (device::peak_rate(gpu, precision) && broken_rules(features_of(other)).size() <= broken)
      return "--set precision=" + other.precision;
  }
  return "";
}

/// Returns why the GPUs of a request cannot be counted; empty: they can.
std::optional<Obstacle> obstacle_of(const PlanRequest& request, const JobSpec& spec) {
  const ClusterRates& rates = request.rates;
  if (rates.compute.value == 0) {
    return Obstacle{.what = spec.precision == "fp64" ? "no known rate in fp64" : "no " + spec.precision + " units",
                    .option = other_precision(kind_of(request), spec),
                    .measured = "measured steps by --bench-train"};
  }
  const bool has_hosts = request.world_size > rates.ranks_per_host;
  if (request.world_size == 1 || (rates.inside.value > 0 && (!has_hosts || rates.between.value > 0)))
    return std::nullopt;
  return Obstacle{.what = "no known rate between GPUs",
                  .option = "--world-size 1",
                  .measured = "--bench-comm FILE, measured on two of them"};
}

/// Throws the obstacles of all kinds, with what counts the first of them.
[[noreturn]] void refuse_uncounted(const std::vector<GpuOffer>& offers) {
  std::string what;
  for (const GpuOffer& offer : offers)
    what += (what.empty() ? "" : "; ") + kind_of(offer.request) + " has " + offer.obstacle->what;
  const Obstacle& first = *offers.front().obstacle;
  const std::string measured = offers.size() > 1 ? "" : first.measured;  // files are of one kind
  std::string hint = first.option + (first.option.empty() || measured.empty() ? "" : ", or ") + measured;
  throw Error(ExitCode::usage,
              {.what = std::move(what), .hint = hint.empty() ? std::string("another kind of GPU") : std::move(hint)});
}

PlanRequest request_of(const PlanCommand& command, const Job& job, const std::string& gpu) {
  RateSources sources = command.rates;
  sources.gpus = gpu;
  PlanRequest request{.world_size = command.world_size,
                      .device_bytes = 0,
                      .rates = plan_rates(sources, job.spec()),
                      .finds_ranks = command.gpus.size() <= 1};
  const bool is_published = command.device_memory.empty() && !gpu.empty();
  request.device_bytes =
      is_published ? device::gpu_system(gpu)->memory_bytes : device_bytes(command.device_memory, job.spec());
  if (request.device_bytes == 0) {
    throw Error(ExitCode::usage, {.what = "how much memory each GPU has is not known: there is none here",
                                  .hint = "--device-memory 80GiB, or --gpus h100"});
  }
  return request;
}

int print_plan(const Job& job, const PlanRequest& request, const Plans& plans, bool json) {
  if (json) {
    std::printf("%s\n", plan_json(request, plans).dump(2).c_str());
  } else {
    std::printf("%s", plan_head(job, request, plans).c_str());
  }
  if (plans.fitting.empty()) refuse_what_does_not_fit(request, plans);
  if (!json) std::printf("%s", plan_table(plans).c_str());
  return 0;
}

/// Names settings that the job does not have yet.
std::string settings_that_need_less(const JobSpec& spec) {
  std::string names;
  const auto add = [&](bool is_open, const char* name) {
    if (is_open) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  const bool is_adapted = spec.model.adapter.has_value();
  add(spec.model.pretrained && !is_adapted, "model.adapter");
  add(spec.model.pretrained && !spec.model.quantize, "model.quantize");
  add(!is_adapted && !spec.optimizer.has_narrow_master(), "optimizer.master");
  add(!is_adapted && spec.optimizer.type.name != "adamw8bit", "optimizer.type: adamw8bit");
  add(true, "shorter samples");
  return names;
}

/// `prices`: null if none are given.
int print_offers(const Job& job, const std::vector<GpuOffer>& offers, const PriceFile* prices,
                 const PlanCommand& command) {
  const RentTerms terms{.interruptions_per_hour = command.interruptions,
                        .save_seconds = command.save_seconds,
                        .restart_seconds = command.restart_seconds,
                        .on_demand_nodes = command.on_demand_nodes};
  const auto rents = prices != nullptr ? rents_of(offers, *prices, terms) : std::vector<Rent>();
  if (command.json) {
    nlohmann::json document = offers_json(offers);
    if (prices != nullptr) document["rent"] = rents_json(rents, *prices, terms);
    std::printf("%s\n", document.dump(2).c_str());
  } else {
    std::printf("%s%s", offers_page(job, offers).c_str(),
                prices != nullptr ? rents_page(rents, *prices, terms).c_str() : "");
  }
  if (std::ranges::any_of(offers, &GpuOffer::fits)) return 0;
  const GpuOffer& largest = *std::ranges::max_element(
      offers, {}, [](const GpuOffer& offer) { return offer.obstacle ? 0 : offer.request.device_bytes; });
  throw Error(ExitCode::environment,
              {.what = fmt::format("none of these GPUs suffices: {} has the most memory, {}, and the job needs {}",
                                   largest.request.rates.gpus, monitor::bytes(largest.request.device_bytes),
                                   monitor::bytes(largest.row().bytes())),
               .hint = "GPUs with more memory, more of them by --world-size, or settings that need less: " +
                       settings_that_need_less(job.spec())});
}

}  // namespace

int plan_command(const PlanCommand& command) {
  const Job job = load_job(command.job);
  take_harmless_environment(job.spec().env);
  std::optional<PriceFile> prices;
  if (!command.prices.empty()) prices = read_prices(command.prices);
  std::vector<NamedGpu> gpus = named_gpus(command, prices);
  if (gpus.size() > 1 && (!command.rates.bench_train.empty() || !command.rates.bench_comm.empty())) {
    throw Error(ExitCode::usage, {.what = "measured files are of one kind of GPU, and --gpus names several",
                                  .hint = "--gpus " + gpus.front().name});
  }
  std::vector<GpuOffer> offers;
  std::vector<PlanRequest> counted;
  for (const NamedGpu& gpu : gpus) {
    PlanRequest request = request_of(command, job, gpu.name);
    auto obstacle = obstacle_of(request, job.spec());
    if (!obstacle) counted.push_back(request);
    offers.push_back({std::move(request), {}, gpu.price, std::move(obstacle)});
  }
  if (counted.empty()) refuse_uncounted(offers);
  std::vector<Plans> plans = search_plans(job, counted);
  auto next = plans.begin();
  for (GpuOffer& offer : offers)
    if (!offer.obstacle) offer.plans = std::move(*next++);
  const GpuOffer& first = offers.front();
  if (offers.size() == 1 && !first.price && !prices) return print_plan(job, first.request, first.plans, command.json);
  return print_offers(job, offers, prices ? &*prices : nullptr, command);
}

}  // namespace gputrain::app
