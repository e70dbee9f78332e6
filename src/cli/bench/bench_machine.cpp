// Commands `gputrain bench matmul`, `bench memory` and `bench disk`: measure the limits of the machine.
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/host.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/inspect/machine_bench.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

at::Device measured_device(const std::string& request) {
  const device::CpuThreads threads = device::plan_cpu_threads(1);
  device::set_cpu_threads(threads);
  return device::choose_device(request, 0);
}

/// Starts a report. Prints the device as the first line, unless the output is JSON.
nlohmann::json begin_report(const BenchMachineRequest& request, at::Device device) {
  const auto facts = device::facts_of(device);
  const int threads = device::plan_cpu_threads(1).count;
  if (!request.json)
    std::printf("device  %s%s\n", facts.name.c_str(),
                device.is_cpu() ? (", " + counted(threads, "thread")).c_str() : "");
  return {{"schema", 1}, {"device", facts.name}, {"threads", threads}, {"rows", nlohmann::json::array()}};
}

std::string gigabytes(double bytes_per_second) { return monitor::significant(bytes_per_second / 1e9) + " GB/s"; }

void end_report(const BenchMachineRequest& request, const nlohmann::json& report) {
  if (request.json) std::printf("%s\n", report.dump(2).c_str());
}

}  // namespace

int bench_matmul_command(const BenchMachineRequest& request) {
  const at::Device device = measured_device(request.device);
  nlohmann::json report = begin_report(request, device);
  auto precisions = request.precision;
  if (precisions.empty()) precisions = {"fp32", "bf16"};
  if (precisions.size() == 2 && request.precision.empty() && device.is_cuda())
    precisions = {"fp32", "tf32", "bf16", "fp16"};
  auto sizes = request.sizes;
  if (sizes.empty())
    sizes = device.is_cuda() ? std::vector<int64_t>{1024, 4096, 8192} : std::vector<int64_t>{256, 1024};
  for (const std::string& precision : precisions) {
    for (const int64_t size : sizes) {
      const MatmulRow row = time_matmul(precision, size, device, request.seconds);
      report["rows"].push_back({{"precision", row.precision},
                                {"size", row.size},
                                {"seconds", row.seconds},
                                {"flops_per_second", row.flops_per_second},
                                {"peak_flops_per_second", row.peak > 0 ? nlohmann::json(row.peak) : nlohmann::json()}});
      if (request.json) continue;
      const std::string of_peak =
          row.peak > 0 ? fmt::format("  {:.0f} % of the data sheet", 100 * row.flops_per_second / row.peak) : "";
      std::printf("%-5s %6s  %10s  %9s TFLOP/s%s\n", precision.c_str(), grouped(size).c_str(),
                  (monitor::significant(1e3 * row.seconds) + " ms").c_str(),
                  monitor::significant(row.flops_per_second / 1e12).c_str(), of_peak.c_str());
      std::fflush(stdout);
    }
  }
  end_report(request, report);
  return 0;
}

int bench_memory_command(const BenchMachineRequest& request) {
  const at::Device device = measured_device(request.device);
  nlohmann::json report = begin_report(request, device);
  for (const CopyRow& row : time_copies(request.bytes, device, request.seconds)) {
    report["rows"].push_back(
        {{"copy", row.what}, {"bytes", request.bytes}, {"bytes_per_second", row.bytes_per_second}});
    if (!request.json) std::printf("%-24s %s\n", row.what.c_str(), gigabytes(row.bytes_per_second).c_str());
  }
  end_report(request, report);
  return 0;
}

int bench_disk_command(const BenchMachineRequest& request) {
  const DiskRates rates = time_disk(request.folder, request.bytes);
  if (request.json) {
    end_report(request, {{"schema", 1},
                         {"folder", request.folder},
                         {"bytes", request.bytes},
                         {"write_bytes_per_second", rates.write},
                         {"read_bytes_per_second", rates.read},
                         {"is_direct", rates.is_direct}});
    return 0;
  }
  std::printf("folder  %s\nwrite   %s, synced\nread    %s%s\n", request.folder.c_str(), gigabytes(rates.write).c_str(),
              gigabytes(rates.read).c_str(),
              rates.is_direct ? "" : ", from the page cache: this file system has no direct access");
  return 0;
}

}  // namespace gputrain::app
