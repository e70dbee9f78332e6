#include "gputrain/doctor/rates.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "gputrain/core/numbers.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/inspect/machine_bench.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::doctor {
namespace {

using launch::MachineRates;
using launch::Rate;

constexpr double kSeconds = 0.3;                 // time of each measurement
constexpr int64_t kCopied = int64_t{256} << 20;  // more than caches hold
constexpr int64_t kWritten = int64_t{256} << 20;

Rate rate_of(std::string part, std::string what, double per_second, std::string (*text)(double)) {
  return {.of = std::move(part), .what = std::move(what), .per_second = per_second, .text = text(per_second)};
}

std::vector<Rate> of_processor() {
  return {rate_of("cpu", "fp32 product", app::time_matmul("fp32", 1024, at::kCPU, kSeconds), flops_text)};
}

std::vector<Rate> of_memory() {
  return {rate_of("memory", "copy in memory", app::time_copies(kCopied, at::kCPU, kSeconds).at(0).bytes_per_second,
                  bytes_text)};
}

std::vector<Rate> of_gpu(int index) {
  const at::Device gpu = device::choose_device("cuda", index);
  const std::string name = "gpu " + std::to_string(index);
  std::vector<Rate> rates{rate_of(name, "fp16 product", app::time_matmul("fp16", 8192, gpu, kSeconds), flops_text)};
  for (const app::CopyRow& row : app::time_copies(kCopied, gpu, kSeconds)) {
    if (row.what != "memory to memory") rates.push_back(rate_of(name, row.what, row.bytes_per_second, bytes_text));
  }
  return rates;
}

std::vector<Rate> of_disk(const std::filesystem::path& folder) {
  const std::string on = file_system_of(folder);
  return {rate_of("disk", "write to " + (on.empty() ? "disk" : on), app::time_disk(folder, kWritten, 5), bytes_text)};
}

/// Measures rates, up to twice more while one is below `least_percent` of the best known, and returns the best of each.
std::vector<Rate> undisturbed(const std::function<std::vector<Rate>()>& measure, const MachineRates& known,
                              double least_percent) {
  constexpr int kTries = 3;
  std::vector<Rate> best = measure();
  const auto is_low = [&](const Rate& rate) { return rate.per_second < known.best_for(rate) * least_percent / 100; };
  for (int i = 1; i < kTries && std::ranges::any_of(best, is_low); ++i) {
    const std::vector<Rate> again = measure();
    for (size_t at = 0; at < best.size(); ++at) {
      if (again[at].per_second > best[at].per_second) best[at] = again[at];
    }
  }
  return best;
}

std::string with_prefix(double value, const char* unit) {
  const char* prefix = value >= 1e12 ? " T" : value >= 1e9 ? " G" : " M";
  const double by = value >= 1e12 ? 1e12 : value >= 1e9 ? 1e9 : 1e6;
  return monitor::significant(value / by) + prefix + unit;
}

}  // namespace

std::string flops_text(double per_second) { return with_prefix(per_second, "FLOP/s"); }
std::string bytes_text(double per_second) { return with_prefix(per_second, "B/s"); }

MachineRates measure_rates(const RatesRequest& request, const BestRates& best) {
  // All cores, whatever OMP_NUM_THREADS says: machines are compared.
  device::set_cpu_threads({.count = device::available_cores(), .reason = "all cores"});
  const bool has_gpus = device::choose_device(request.device, 0).is_cuda();
  std::vector<std::function<std::vector<Rate>()>> parts;
  MachineRates machine;
  if (has_gpus) {
    const int count = device::gpu_count();
    machine.kind = std::to_string(count) + " x " + device::facts_of(device::current_gpu()).name;
    for (int i = 0; i < count; ++i) parts.emplace_back([i] { return of_gpu(i); });
  } else {
    machine.kind = device::cpu_name() + ", " + counted(device::available_cores(), "core");
    parts.emplace_back(of_processor);
  }
  parts.emplace_back(of_memory);
  parts.emplace_back([&] { return of_disk(request.folder); });
  machine.best = best.of(machine.kind);
  for (const auto& part : parts) {
    for (Rate& rate : undisturbed(part, machine, request.least_percent)) machine.rates.push_back(std::move(rate));
  }
  return machine;
}

Findings rate_findings(const MachineRates& machine, double least_percent) {
  Findings findings;
  for (const Rate& rate : machine.rates) {
    Finding found{.check = rate.of, .text = rate.what + "  " + rate.text};
    const double best = machine.best_for(rate);
    if (best <= 0) {
      found.text += ", the first measured of this kind";
    } else if (rate.per_second >= best) {
      found.text += ", the best of its kind";
    } else {
      const double percent = 100 * rate.per_second / best;
      const bool is_bytes = rate.text.ends_with("B/s");
      found.text += ", " + std::to_string(std::lround(percent)) + " % of the best of its kind, " +
                    (is_bytes ? bytes_text(best) : flops_text(best));
      if (percent < least_percent) {
        found.verdict = Verdict::bad;
        found.text += ": below " + monitor::significant(least_percent) + " %";
        found.fix = "look for other processes (top, nvidia-smi), heat, a damaged part";
      }
    }
    findings.push_back(std::move(found));
  }
  return findings;
}

double write_speed(const std::filesystem::path& folder) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  return app::time_disk(folder, kBytes, 2);
}

}  // namespace gputrain::doctor
