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
#include "gputrain/inspect/plan_rates.hpp"
#include "gputrain/job/job_environment.hpp"
#include "gputrain/monitor/format.hpp"
#include "plan_page.hpp"

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

void refuse_unknown_links(const PlanRequest& request) {
  const ClusterRates& rates = request.rates;
  const bool has_hosts = request.world_size > rates.ranks_per_host;
  if (request.world_size == 1 || (rates.inside.value > 0 && (!has_hosts || rates.between.value > 0))) return;
  throw Error(ExitCode::usage,
              {.what = "how fast several GPUs of the kind " + rates.gpus + " exchange data is not known",
               .hint = "--bench-comm FILE, measured on two of them, or --world-size 1"});
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
  refuse_unknown_links(request);
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

int print_offers(const Job& job, const std::vector<GpuOffer>& offers, bool json) {
  std::printf("%s", json ? (offers_json(offers).dump(2) + "\n").c_str() : offers_page(job, offers).c_str());
  if (std::ranges::any_of(offers, &GpuOffer::fits)) return 0;
  const GpuOffer& largest =
      *std::ranges::max_element(offers, {}, [](const GpuOffer& offer) { return offer.request.device_bytes; });
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
  std::vector<NamedGpu> gpus;
  for (const std::string& text : command.gpus) gpus.push_back(read_gpu(text));
  if (gpus.empty()) gpus.emplace_back();
  if (gpus.size() > 1 && (!command.rates.bench_train.empty() || !command.rates.bench_comm.empty())) {
    throw Error(ExitCode::usage, {.what = "measured files are of one kind of GPU, and --gpus names several",
                                  .hint = "--gpus " + gpus.front().name});
  }
  std::vector<PlanRequest> requests;
  for (const NamedGpu& gpu : gpus) requests.push_back(request_of(command, job, gpu.name));
  std::vector<Plans> plans = search_plans(job, requests);
  if (gpus.size() == 1 && !gpus.front().price) return print_plan(job, requests.front(), plans.front(), command.json);
  std::vector<GpuOffer> offers;
  for (size_t i = 0; i < gpus.size(); ++i) offers.push_back({requests[i], std::move(plans[i]), gpus[i].price});
  return print_offers(job, offers, command.json);
}

}  // namespace gputrain::app
