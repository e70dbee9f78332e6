#include "timing.hpp"

#include <algorithm>
#include <vector>

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sub.h>
#include <c10/cuda/CUDAStream.h>

namespace probe {

double median_ms(const std::function<void()>& run, int repeats, int warmup) {
  for (int i = 0; i < warmup; ++i) run();
  std::vector<std::pair<at::cuda::CUDAEvent, at::cuda::CUDAEvent>> events;
  for (int i = 0; i < repeats; ++i) {
    events.emplace_back(at::cuda::CUDAEvent(cudaEventDefault), at::cuda::CUDAEvent(cudaEventDefault));
    events.back().first.record();
    run();
    events.back().second.record();
  }
  c10::cuda::getCurrentCUDAStream().synchronize();
  std::vector<double> times;
  for (auto& [begin, end] : events) times.push_back(static_cast<double>(begin.elapsed_time(end)));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

double relative_error(const at::Tensor& value, const at::Tensor& reference) {
  const at::Tensor expected = reference.to(at::kDouble);
  const at::Tensor difference = at::sub(value.to(at::kDouble), expected);
  return at::linalg_vector_norm(difference).item<double>() / at::linalg_vector_norm(expected).item<double>();
}

at::Tensor noise(at::IntArrayRef sizes, at::ScalarType dtype, double deviation) {
  return at::randn(sizes, at::TensorOptions().device(at::kCUDA).dtype(at::kFloat)).mul_(deviation).to(dtype);
}

}  // namespace probe
