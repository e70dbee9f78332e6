#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/nn/module.hpp"

namespace gputrain::nn {
namespace {

constexpr int64_t kBlock = 4;  // elements drawn from one Philox block

// Uniform in (0, 1): never 0, whose logarithm is infinite.
double open_unit(uint32_t bits) { return (static_cast<double>(bits) + 0.5) * 0x1.0p-32; }

// Box and Muller's pairs, in double so that the rounded values do not depend on a mathematics library's last bit.
void normal_block(const std::array<uint32_t, 4>& bits, double scale, double* out) {
  for (size_t pair = 0; pair < 4; pair += 2) {
    const double radius = scale * std::sqrt(-2.0 * std::log(open_unit(bits[pair])));
    const double angle = 2.0 * std::numbers::pi * open_unit(bits[pair + 1]);
    out[pair] = radius * std::cos(angle);
    out[pair + 1] = radius * std::sin(angle);
  }
}

void uniform_block(const std::array<uint32_t, 4>& bits, double scale, double* out) {
  for (size_t i = 0; i < 4; ++i) out[i] = scale * (2.0 * (static_cast<double>(bits[i]) * 0x1.0p-32) - 1.0);
}

/// Elements [begin, end) of a tensor's row-major order; `begin` is a multiple of kBlock.
template <class Element>
void draw(Element* values, int64_t begin, int64_t end, const Init& init, uint64_t key) {
  double block[kBlock];
  for (int64_t i = begin; i < end; i += kBlock) {
    const auto bits = philox(key, static_cast<uint64_t>(i / kBlock), 0);
    init.kind == Init::Kind::normal ? normal_block(bits, init.scale, block) : uniform_block(bits, init.scale, block);
    for (int64_t lane = 0; lane < std::min(kBlock, end - i); ++lane)
      values[i + lane] = static_cast<Element>(block[lane]);
  }
}

// Plain threads: this runs once per job, and every element is a function of its index alone.
template <class Element>
void draw_in_parallel(Element* values, int64_t count, const Init& init, uint64_t key) {
  constexpr int64_t kGrain = int64_t{1} << 16;
  const int64_t workers = std::clamp<int64_t>(count / kGrain, 1, at::get_num_threads());
  const int64_t share = (count / workers + kBlock) / kBlock * kBlock;
  std::vector<std::jthread> threads;
  for (int64_t begin = share; begin < count; begin += share) {
    threads.emplace_back([=, &init] { draw(values, begin, std::min(count, begin + share), init, key); });
  }
  draw(values, 0, std::min(count, share), init, key);
}

void fill_random(const at::Tensor& tensor, const Init& init, uint64_t key) {
  const bool in_place = tensor.is_cpu() && tensor.is_contiguous();
  const at::Tensor rows = in_place ? tensor : at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  switch (rows.scalar_type()) {
    case at::kFloat:
      draw_in_parallel(rows.mutable_data_ptr<float>(), rows.numel(), init, key);
      break;
    case at::kDouble:
      draw_in_parallel(rows.mutable_data_ptr<double>(), rows.numel(), init, key);
      break;
    default:
      GPUTRAIN_ASSERT(false, "random initial values are for fp32 and fp64 tensors");
  }
  if (!in_place) tensor.copy_(rows);
}

void fill(const at::Tensor& tensor, const Init& init, uint64_t key) {
  switch (init.kind) {
    case Init::Kind::zeros:
      tensor.zero_();
      break;
    case Init::Kind::ones:
      tensor.fill_(1);
      break;
    case Init::Kind::normal:
    case Init::Kind::uniform:
      fill_random(tensor, init, key);
      break;
  }
}

}  // namespace

void initialize(Module& module, uint64_t seed) {
  const at::NoGradGuard no_grad;
  module.each_parameter([seed](const std::string& name, Parameter& parameter) {
    fill(parameter.value, parameter.init, mix(seed, stable_hash(name)));
  });
  module.each_buffer([seed](const std::string& name, Buffer& buffer) {
    fill(buffer.value, buffer.init, mix(seed, stable_hash(name)));
  });
}

}  // namespace gputrain::nn
