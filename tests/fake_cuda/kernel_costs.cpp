// Costs of our kernels by their parameters.
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "../../src/ops/cuda/kernels/activation.hpp"
#include "../../src/ops/cuda/kernels/adamw8bit.hpp"
#include "../../src/ops/cuda/kernels/batch_norm.hpp"
#include "../../src/ops/cuda/kernels/cross_entropy.hpp"
#include "../../src/ops/cuda/kernels/embedding.hpp"
#include "../../src/ops/cuda/kernels/max_pool.hpp"
#include "../../src/ops/cuda/kernels/norm.hpp"
#include "../../src/ops/cuda/kernels/optimizer.hpp"
#include "../../src/ops/cuda/quantized/quantized.hpp"
#include "ledger.hpp"

namespace gputrain::fake_cuda {
namespace {

using namespace ops::cuda;

constexpr double kFloat = sizeof(float);

double size_of(Element element) { return element == Element::fp32 ? 4 : 2; }

/// Number of the given pointers that are not null.
template <class... Pointers>
double count_of(Pointers... pointers) {
  return (0.0 + ... + (pointers == nullptr ? 0.0 : 1.0));
}

template <class Parameters>
Parameters parameters_of(void** arguments, size_t at = 0) {
  Parameters p;
  std::memcpy(&p, arguments[at], sizeof(p));
  return p;
}

double bytes_of(const ActivationRows& p, double passes) {
  return passes * static_cast<double>(p.rows * p.width) * size_of(p.element);
}

double bytes_of(const GatedRows& p, double passes) {
  return passes * static_cast<double>(p.rows * p.width) * size_of(p.element);
}

/// Codes of 4 bits, their scales and the values.
double bytes_of(const QuantizeBlocks& p) {
  const double count = static_cast<double>(p.count);
  return count * (0.5 + size_of(p.element)) + count / p.block * kFloat;
}

double bytes_of(const DequantizeBlocks& p) {
  const double count = static_cast<double>(p.count);
  return count * (0.5 + size_of(p.element)) + count / p.block * (p.scales == nullptr ? 1 : kFloat);
}

/// Codes of 8 bits, a scale of each row and the values.
template <class Rows>
double bytes_of_rows(const Rows& p) {
  return static_cast<double>(p.rows) * (static_cast<double>(p.columns) * (1 + size_of(p.element)) + kFloat);
}

double bytes_of_norm(void** arguments, bool is_forward) {
  if (is_forward) {
    const auto p = parameters_of<NormForward>(arguments);
    const double rows = static_cast<double>(p.rows), passes = 2 + count_of(p.residual, p.z);
    return passes * rows * static_cast<double>(p.width) * size_of(p.element) + rows * kFloat * (1 + count_of(p.mean));
  }
  const auto p = parameters_of<NormBackward>(arguments);
  const double rows = static_cast<double>(p.rows), passes = 3 + count_of(p.passed, p.dx);
  return passes * rows * static_cast<double>(p.width) * size_of(p.element) +
         2.0 * p.parts * static_cast<double>(p.width) * kFloat;
}

double bytes_of(const Rotation& p) {
  const double rows = static_cast<double>(p.batch * p.heads * p.time * p.half);
  const double tables = static_cast<double>((p.tables_of_rows ? p.batch : 1) * p.time * p.half);
  return 4 * rows * size_of(p.element) + 2 * tables * kFloat;
}

/// Channels-last images: `passes` over [rows, channels].
double bytes_of(const ImageRows& p, double passes) {
  return passes * static_cast<double>(p.rows * p.channels) * size_of(p.element);
}

/// y is read where nothing else says what the ReLU let through.
double y_passes(const BatchGradient& p) { return p.relu && p.passed == nullptr ? count_of(p.y) : 0; }

/// A bit for each element of the images.
double bytes_of_bits(void** arguments, const void* bits) {
  const auto p = parameters_of<ImageRows>(arguments);
  return count_of(bits) * static_cast<double>(p.rows * p.channels) / 8;
}

double bytes_of(const Update& p, double of_state) {
  double elements = 0;
  for (int i = 0; i < p.count; ++i) elements += static_cast<double>(p.stretches[i].end - p.stretches[i].begin);
  return elements * (3 * size_of(p.element) + of_state + (p.working == nullptr ? 0 : size_of(p.working_element)));
}

double bytes_of(const AdamW8bitUpdate& p) {
  double bytes = 0;
  for (int i = 0; i < p.count; ++i) {
    const UpdatedTensor& t = p.tensors[i];
    double of_each = 3 * size_of(p.element) + (t.working == nullptr ? 0 : size_of(p.working_element));
    for (const Average& average : {t.first, t.second}) of_each += average.scales == nullptr ? 2 * kFloat : 2;
    bytes += of_each * static_cast<double>(t.numel);
  }
  return bytes;
}

/// The same in both directions: the image, its maxima and their places, each once.
double bytes_of(const MaxPool& p) {
  const int64_t windows = (p.height + 1) / 2 * ((p.width + 1) / 2);
  const double large = static_cast<double>(p.batch * p.channels * p.height * p.width),
               small = static_cast<double>(p.batch * p.channels * windows);
  return (large + small) * size_of(p.element) + small;
}

using Formula = std::function<double(void**)>;

const std::vector<std::pair<std::string_view, Formula>>& formulas() {
  static const auto& all = *new std::vector<std::pair<std::string_view, Formula>>{
      {"activation_forward_kernel", [](void** a) { return bytes_of(parameters_of<ActivationRows>(a), 2); }},
      {"activation_backward_kernel", [](void** a) { return bytes_of(parameters_of<ActivationRows>(a), 3); }},
      {"gated_forward_kernel", [](void** a) { return bytes_of(parameters_of<GatedRows>(a), 3); }},
      {"gated_backward_kernel", [](void** a) { return bytes_of(parameters_of<GatedRows>(a), 5); }},
      {"rotate_kernel", [](void** a) { return bytes_of(parameters_of<Rotation>(a)); }},
      {"norm_forward_kernel", [](void** a) { return bytes_of_norm(a, true); }},
      {"norm_backward_kernel", [](void** a) { return bytes_of_norm(a, false); }},
      {"column_sums_kernel",
       [](void** a) {
         const auto p = parameters_of<ColumnSums>(a);
         return 2 * static_cast<double>(p.parts * p.width) * kFloat;
       }},
      {"total_kernelIf", [](void** a) { return kFloat * static_cast<double>(parameters_of<int64_t>(a, 1)); }},
      {"total_kernelId", [](void** a) { return 2 * kFloat * static_cast<double>(parameters_of<int64_t>(a, 1)); }},
      {"square_sums_kernelIf", [](void** a) { return kFloat * static_cast<double>(parameters_of<int64_t>(a, 1)); }},
      {"square_sums_kernel", [](void** a) { return 2 * static_cast<double>(parameters_of<int64_t>(a, 1)); }},  // bf16
      {"gradient_scalars_kernel", [](void**) { return 0.0; }},
      {"cross_entropy_kernel",
       [](void** a) {
         const auto p = parameters_of<CrossEntropyRows>(a);
         return (1 + count_of(p.weight)) * static_cast<double>(p.rows * p.columns) * size_of(p.element);
       }},
      {"scale_logits_kernel", [](void**) { return 0.0; }},  // the weight is 1 in training
      {"embedding_gradient_kernel",
       [](void** a) {
         const auto p = parameters_of<EmbeddingGradient>(a);
         return static_cast<double>(p.count * p.channels) * (size_of(p.element) + size_of(p.weight_element));
       }},
      {"adamw_kernel",
       [](void** a) {
         const auto p = parameters_of<AdamWUpdate>(a);
         return bytes_of(p.common, 4 * size_of(p.averages));
       }},
      {"sgd_kernel",
       [](void** a) {
         const auto p = parameters_of<SgdUpdate>(a);
         return bytes_of(p.common, 2 * kFloat * count_of(p.velocity));
       }},
      {"adamw8bit_kernel", [](void** a) { return bytes_of(parameters_of<AdamW8bitUpdate>(a)); }},
      {"batch_statistics_kernel", [](void** a) { return bytes_of(parameters_of<ImageRows>(a), 1); }},
      {"batch_moments_kernel",
       [](void** a) {
         const auto p = parameters_of<ImageRows>(a);
         return 3.0 * p.parts * static_cast<double>(p.channels) * kFloat;
       }},
      {"batch_slopes_kernel",
       [](void** a) {
         const auto p = parameters_of<ImageRows>(a);
         return 2.0 * p.parts * static_cast<double>(p.channels) * kFloat;
       }},
      {"batch_apply_kernel",
       [](void** a) {
         const auto p = parameters_of<BatchApply>(a, 1);
         return bytes_of(parameters_of<ImageRows>(a), 2 + count_of(p.residual)) + bytes_of_bits(a, p.passed);
       }},
      {"batch_sums_kernel",
       [](void** a) {
         const auto p = parameters_of<BatchGradient>(a, 1);
         return bytes_of(parameters_of<ImageRows>(a), 2 + count_of(p.dresidual) + y_passes(p)) +
                bytes_of_bits(a, p.passed);
       }},
      {"batch_gradient_kernel",
       [](void** a) {
         const auto p = parameters_of<BatchGradient>(a, 1);
         return bytes_of(parameters_of<ImageRows>(a), 3 + y_passes(p)) + (p.relu ? bytes_of_bits(a, p.passed) : 0);
       }},
      {"quantize_blocks_kernel", [](void** a) { return bytes_of(parameters_of<QuantizeBlocks>(a)); }},
      {"dequantize_blocks_kernel", [](void** a) { return bytes_of(parameters_of<DequantizeBlocks>(a)); }},
      {"quantize_rows_kernel", [](void** a) { return bytes_of_rows(parameters_of<QuantizeRows>(a)); }},
      {"dequantize_rows_kernel", [](void** a) { return bytes_of_rows(parameters_of<DequantizeRows>(a)); }},
      {"max_pool_forward_kernel", [](void** a) { return bytes_of(parameters_of<MaxPool>(a)); }},
      {"max_pool_backward_kernel", [](void** a) { return bytes_of(parameters_of<MaxPool>(a)); }},
  };
  return all;
}

}  // namespace

Cost cost_of_kernel(const std::string& name, void** arguments) {
  if (name.find("gputrain") == std::string::npos) return {};
  for (const auto& [kernel, formula] : formulas()) {
    // A mangled name has its length before it: "12adamw_kernel" is not the end of another name.
    const size_t at = name.find(kernel);
    if (at != std::string::npos && name[at - 1] >= '0' && name[at - 1] <= '9')
      return {.kind = "ours " + std::string(kernel.substr(0, kernel.find("_kernel"))), .bytes = formula(arguments)};
  }
  throw std::logic_error("the kernel " + name + " has no formula in kernel_costs.cpp");
}

}  // namespace gputrain::fake_cuda
