#include <set>

#include <ATen/ops/mm.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "sections.hpp"
#include "timing.hpp"

namespace probe {

void probe_profiler(Report& report) {
  report.attempt("profiler", Record().set("what", "Kineto with CUPTI"), [](Record& record) {
    namespace profiler = torch::autograd::profiler;
    const at::Tensor a = noise({1024, 1024}, at::kBFloat16);
    const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO, true, true, false, true);
    const std::set<profiler::ActivityType> activities{profiler::ActivityType::CPU, profiler::ActivityType::CUDA};
    profiler::prepareProfiler(config, activities);
    profiler::enableProfiler(config, activities);
    for (int i = 0; i < 10; ++i) at::mm(a, a);
    cudaDeviceSynchronize();
    const auto result = profiler::disableProfiler();
    int64_t on_device = 0, device_ns = 0;
    for (const auto& event : result->events()) {
      if (event.deviceType() != c10::DeviceType::CUDA) continue;
      ++on_device;
      device_ns += static_cast<int64_t>(event.durationNs());
    }
    record.set("events", static_cast<int64_t>(result->events().size()))
        .set("on_device", on_device)
        .set("device_ns", device_ns);
  });
}

}  // namespace probe
