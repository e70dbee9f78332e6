// usage: gpu_probe [SECTION...]
// Measures the single operations of training on a GPU; without sections, lists them. Exits with 3 after a section that
// broke the GPU for the rest of the process.
#include <chrono>
#include <exception>
#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "sections.hpp"

int main(int argc, char** argv) {
  const std::vector<std::pair<std::string, void (*)(probe::Report&)>> sections{
      {"device", probe::probe_device},
      {"memory", probe::probe_memory},
      {"kernels", probe::probe_kernels},
      {"gemm", probe::probe_gemm},
      {"attention", probe::probe_attention},
      {"numerics", probe::probe_numerics},
      {"optimizers", probe::probe_optimizers},
      {"graphs", probe::probe_graphs},
      {"nccl", probe::probe_nccl},
      {"profiler", probe::probe_profiler},
      {"convolution", probe::probe_convolution}};
  const std::set<std::string> wanted(argv + 1, argv + argc);
  if (wanted.empty()) {
    for (const auto& [name, run] : sections) std::cout << name << ' ';
    std::cout << '\n';
    return 0;
  }
  int devices = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&devices); status != cudaSuccess || devices == 0) {
    std::cerr << "gpu_probe: no GPU can be used: " << cudaGetErrorString(status) << '\n';
    return 6;
  }
  probe::Report report;
  for (const auto& [name, run] : sections) {
    if (wanted.count(name) == 0) continue;
    const auto started = std::chrono::steady_clock::now();
    report.attempt("sections", probe::Record().set("name", name), [&](probe::Record& record) {
      run(report);
      record.set("seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
    });
    if (cudaDeviceSynchronize() != cudaSuccess) return 3;
  }
  return 0;
}
