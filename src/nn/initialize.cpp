#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/nn/module.hpp"
#include "gputrain/nn/split.hpp"
#include "random_values.hpp"

namespace gputrain::nn {
namespace {

/// Draws elements [begin, end) of a tensor in row-major order.
template <class Element>
void draw(Element* values, int64_t begin, int64_t end, const Init& init, uint64_t key) {
  double chunk[kRandomChunk];
  for (int64_t first = begin / kRandomChunk * kRandomChunk; first < end; first += kRandomChunk) {
    (init.kind == Init::Kind::normal ? normal_values : uniform_values)(key, static_cast<uint64_t>(first / kRandomChunk),
                                                                       chunk);
    const int64_t from = std::max(begin, first), until = std::min(end, first + kRandomChunk);
    for (int64_t i = from; i < until; ++i) values[i - begin] = static_cast<Element>(init.scale * chunk[i - first]);
  }
}

/// Calls work(begin, end) for parts of [0, count), each at least `grain`. Plain threads: this runs once per job.
template <class Work>
void in_parallel(int64_t count, int64_t grain, const Work& work) {
  const int64_t workers = std::clamp<int64_t>(count / grain, 1, at::get_num_threads());
  const int64_t share = ceil_divide(count, workers);
  std::vector<std::jthread> threads;
  for (int64_t begin = share; begin < count; begin += share) {
    threads.emplace_back([&work, begin, end = std::min(count, begin + share)] { work(begin, end); });
  }
  work(0, std::min(count, share));
}

constexpr int64_t kGrain = int64_t{1} << 16;  // minimum number of elements per thread

template <class Element>
void draw_rows(Element* values, int64_t count, const Init& init, uint64_t key) {
  in_parallel(count, kGrain, [&](int64_t begin, int64_t end) { draw(values + begin, begin, end, init, key); });
}

/// Draws weights [out, in, height, width] that are in NHWC order.
template <class Element>
void draw_pixels(Element* values, at::IntArrayRef sizes, const Init& init, uint64_t key) {
  const int64_t channels = sizes[1], pixels = sizes[2] * sizes[3], filter = channels * pixels;
  in_parallel(sizes[0], std::max<int64_t>(1, kGrain / filter), [&](int64_t begin, int64_t end) {
    std::vector<Element> drawn(static_cast<size_t>(filter));
    for (int64_t out = begin; out < end; ++out) {
      draw(drawn.data(), out * filter, (out + 1) * filter, init, key);
      const Element* next = drawn.data();
      for (int64_t channel = 0; channel < channels; ++channel) {
        for (int64_t pixel = 0; pixel < pixels; ++pixel) values[out * filter + pixel * channels + channel] = *next++;
      }
    }
  });
}

template <class Element>
void draw_in_order(const at::Tensor& tensor, const Init& init, uint64_t key) {
  auto* values = tensor.mutable_data_ptr<Element>();
  tensor.is_contiguous() ? draw_rows(values, tensor.numel(), init, key)
                         : draw_pixels(values, tensor.sizes(), init, key);
}

void fill_random(const at::Tensor& tensor, const Init& init, uint64_t key) {
  const bool is_wide = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
  const bool in_place =
      is_wide && tensor.is_cpu() && (tensor.is_contiguous() || tensor.is_contiguous(at::MemoryFormat::ChannelsLast));
  const auto type = is_wide ? tensor.scalar_type() : at::kFloat;  // 16-bit values are rounded ones
  const at::Tensor drawn = in_place ? tensor : at::empty(tensor.sizes(), at::TensorOptions().dtype(type));
  switch (drawn.scalar_type()) {
    case at::kFloat:
      draw_in_order<float>(drawn, init, key);
      break;
    case at::kDouble:
      draw_in_order<double>(drawn, init, key);
      break;
    default:
      GPUTRAIN_ASSERT(false, "random initial values are drawn in fp32 or fp64");
  }
  if (!in_place) tensor.copy_(drawn);
}

void fill(const at::Tensor& tensor, const Init& init, uint64_t key) {
  switch (init.kind) {
    case Init::Kind::as_given:
      break;
    case Init::Kind::zeros:
      tensor.zero_();
      break;
    case Init::Kind::ones:
      tensor.fill_(1);
      break;
    case Init::Kind::constant:
      tensor.fill_(init.scale);
      break;
    case Init::Kind::normal:
    case Init::Kind::uniform:
      fill_random(tensor, init, key);
      break;
  }
}

/// Checks the names, which files also use: without this check, a duplicate would fail at the first checkpoint.
void check_names(Module& module) {
  std::set<std::string> names;
  const auto note = [&names](const std::string& name, const auto&) {
    GPUTRAIN_ASSERT(names.insert(name).second, "two parameters or buffers of the model are named '" + name + "'");
  };
  module.each_parameter(note);
  module.each_buffer(note);
}

}  // namespace

void initialize(Module& module, uint64_t seed) {
  check_names(module);
  const at::NoGradGuard no_grad;
  module.each_parameter([seed](const std::string& name, Parameter& parameter) {
    if (!device::has_memory(parameter.value)) return;
    const uint64_t key = mix(seed, stable_hash(name));
    if (!parameter.split) return fill(parameter.value, parameter.init, key);
    const at::Tensor whole =
        at::empty(parameter.split->whole_sizes(parameter.value.sizes().vec()), parameter.value.detach().options());
    fill(whole, parameter.init, key);
    parameter.value.copy_(part_of(*parameter.split, whole));
  });
  module.each_buffer([seed](const std::string& name, Buffer& buffer) {
    fill(buffer.value, buffer.init, mix(seed, stable_hash(name)));
  });
}

}  // namespace gputrain::nn
