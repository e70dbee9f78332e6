#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>

#include "../../dispatch/gpu.hpp"
#include "../kernels/adamw8bit.hpp"
#include "gputrain/ops/blockwise_update.hpp"
#include "launching.hpp"

namespace gputrain::ops {

static_assert(kQuantizedBlock == cuda::kScaled);

/// The launches only; the caller has chosen.
struct BlockwiseLaunch {
  static bool takes(const BlockwiseTensor& tensor) {
    const at::ScalarType type = tensor.value.scalar_type();
    const bool is_stored = type == at::kFloat || type == at::kBFloat16;
    const auto is_flat = [&](const at::Tensor& one) {
      return one.defined() && gpu::is_here(one) && is_stored && one.scalar_type() == type && one.is_contiguous() &&
             one.numel() == tensor.value.numel();
    };
    return is_flat(tensor.value) && is_flat(tensor.gradient);
  }

  static void upload(BlockwiseUpdate& update) {
    const at::Device device = update.tensors_.front().value.device();
    const auto bytes = static_cast<int64_t>(update.tensors_.size() * sizeof(cuda::UpdatedTensor));
    const at::Tensor table = at::empty({bytes}, at::kByte);
    auto* entries = static_cast<cuda::UpdatedTensor*>(table.mutable_data_ptr());
    update.blocks_ = 0;
    for (const BlockwiseTensor& one : update.tensors_) {
      const auto average = [](const at::Tensor& numbers, const at::Tensor& scales) {
        return cuda::Average{.numbers = cuda::write(numbers), .scales = cuda::write<float>(scales)};
      };
      *entries++ = {.value = cuda::write(one.value),
                    .gradient = cuda::read(one.gradient),
                    .working = cuda::write(one.copy),
                    .first = average(one.first, one.first_scales),
                    .second = average(one.second, one.second_scales),
                    .numel = one.value.numel(),
                    .first_block = update.blocks_,
                    .decay = static_cast<float>(one.weight_decay),
                    .lr_factor = static_cast<float>(one.lr_factor),
                    .since = static_cast<float>(one.since),
                    .key = one.key};
      update.blocks_ += cuda::grid_blocks_of(one.value.numel());
    }
    update.table_ = table.to(device);
    std::vector<double> trees = dynamic_tree(/*is_signed=*/true);
    const std::vector<double> of_squares = dynamic_tree(/*is_signed=*/false);
    trees.insert(trees.end(), of_squares.begin(), of_squares.end());
    update.trees_ = at::tensor(trees, at::kDouble).to(at::kFloat).to(device);
  }

  static void adamw(const BlockwiseUpdate& update, const at::Tensor& step, const UpdateScalars& scalars,
                    const AdamWRule& rule) {
    const at::Tensor& copy = update.tensors_.front().copy;
    cuda::adamw8bit({.tensors = static_cast<const cuda::UpdatedTensor*>(update.table_.const_data_ptr()),
                     .count = static_cast<int>(update.tensors_.size()),
                     .blocks = update.blocks_,
                     .element = cuda::element_of(update.tensors_.front().value),
                     .working_element = copy.defined() ? cuda::element_of(copy) : cuda::Element::bf16,
                     .trees = cuda::read<float>(update.trees_),
                     .lr = cuda::read<float>(scalars.lr),
                     .divisor = scalars.divisor ? cuda::read<float>(*scalars.divisor) : nullptr,
                     .found_inf = scalars.found_inf ? cuda::read<float>(*scalars.found_inf) : nullptr,
                     .step = cuda::read<float>(step),
                     .beta1 = rule.beta1,
                     .beta2 = rule.beta2,
                     .eps = static_cast<float>(rule.eps)},
                    cuda::current_stream());
    cuda::check_launches();
  }
};

namespace {

/// Returns a part of a tensor, of the size that a comparison takes.
BlockwiseTensor part_of(const BlockwiseTensor& whole) {
  constexpr int64_t kMostElements = int64_t{1} << 22;
  const int64_t numel = std::min(whole.value.numel(), kMostElements),
                blocks = (numel + kQuantizedBlock - 1) / kQuantizedBlock;
  const auto first_of = [](const at::Tensor& flat, int64_t count) {
    return flat.defined() ? flat.narrow(0, 0, count) : flat;
  };
  BlockwiseTensor part = whole;
  for (at::Tensor* one : {&part.value, &part.gradient, &part.first, &part.second, &part.copy}) *one = first_of(*one, numel);
  for (at::Tensor* one : {&part.first_scales, &part.second_scales}) *one = first_of(*one, blocks);
  return part;
}

Tensors tensors_of(const BlockwiseTensor& one) {
  return {one.value, one.gradient, one.first, one.first_scales, one.second, one.second_scales, one.copy};
}

BlockwiseTensor with(BlockwiseTensor like, const Tensors& t) {
  like.value = t[0];
  like.gradient = t[1];
  like.first = t[2];
  like.first_scales = t[3];
  like.second = t[4];
  like.second_scales = t[5];
  like.copy = t[6];
  return like;
}

}  // namespace

bool BlockwiseUpdate::adamw(const at::Tensor& step, const UpdateScalars& scalars, const AdamWRule& rule,
                            const Reference& reference) {
  if (tensors_.empty() || !std::ranges::all_of(tensors_, BlockwiseLaunch::takes)) return false;
  const auto narrow = std::ranges::find_if(tensors_, &BlockwiseTensor::is_narrow);
  const BlockwiseTensor tried = part_of(narrow != tensors_.end() ? *narrow : tensors_.front());
  // Codes next to each other are as good; what they stand for is compared by the values of a second update.
  const auto results_of = [](const BlockwiseTensor& one) {
    Tensors results{one.value};
    for (const at::Tensor& more : {one.first_scales, one.second_scales, one.copy})
      if (more.defined()) results.push_back(more);
    return results;
  };
  // The scalars of a finite gradient: with others neither way would do anything.
  const auto number = [](const std::optional<at::Tensor>& like, double value) {
    return like ? std::optional(at::full_like(*like, value)) : std::nullopt;
  };
  const UpdateScalars finite{scalars.lr, number(scalars.found_inf, 0), number(scalars.divisor, 1)};
  const auto twice = [&](const Tensors& t, const auto& update_once) {
    const BlockwiseTensor one = with(tried, t);
    for (int i = 0; i < 2; ++i) update_once(one);
    return results_of(one);
  };
  const OpImpl custom = [&](const Tensors& t) {
    return twice(t, [&](const BlockwiseTensor& one) {
      BlockwiseUpdate alone({one});
      BlockwiseLaunch::upload(alone);
      BlockwiseLaunch::adamw(alone, step, finite, rule);
    });
  };
  const OpImpl by_aten = [&](const Tensors& t) {
    return twice(t, [&](const BlockwiseTensor& one) {
      reference(one, finite);
      if (one.copy.defined()) one.copy.copy_(one.value);
    });
  };
  const KernelAutotuner::Inputs kinds{.batched = 0, .differentiable = 0, .replicated = true};
  if (!kernel_autotuner().use_custom_kernel("adamw8bit", tensors_of(tried), kinds, custom, by_aten)) return false;
  if (!table_.defined()) BlockwiseLaunch::upload(*this);
  BlockwiseLaunch::adamw(*this, step, scalars, rule);
  return true;
}

}  // namespace gputrain::ops
