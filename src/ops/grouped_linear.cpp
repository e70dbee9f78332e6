#include "gputrain/ops/grouped_linear.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "dispatch/gpu.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/ops/linear.hpp"

namespace gputrain::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Rows of a block. Small blocks waste less: on average, each group fills half of its last one. Large ones need fewer
/// products.
int64_t rows_in_block(int64_t rows, int64_t groups) {
  constexpr int64_t kLeast = 16, kMost = 256, kBlocksInGroup = 4;
  int64_t size = kLeast;
  while (size < kMost && 2 * size * kBlocksInGroup * groups <= rows) size *= 2;
  return size;
}

/// Matrices of one shape as one tensor [matrices, rows, columns], if they lie in one storage at equal distances; else
/// undefined.
at::Tensor as_one(at::TensorList matrices) {
  const at::Tensor& first = matrices[0];
  const int64_t distance = matrices.size() > 1 ? matrices[1].storage_offset() - first.storage_offset() : first.numel();
  for (size_t i = 0; i < matrices.size(); ++i) {
    const at::Tensor& one = matrices[i];
    const bool is_next = one.is_contiguous() && one.is_alias_of(first) && one.sizes() == first.sizes() &&
                         one.storage_offset() == first.storage_offset() + static_cast<int64_t>(i) * distance;
    if (!is_next || distance < first.numel()) return {};
  }
  return first.detach().as_strided({std::ssize(matrices), first.size(0), first.size(1)}, {distance, first.size(1), 1});
}

/// Computes x W^T of each block, or x W.
at::Tensor products(const at::Tensor& x, const at::Tensor& all, const at::Tensor& groups, bool transposes) {
  if (at::Tensor y = gpu::grouped_products(x, all, groups, transposes); y.defined()) return y;
  const at::Tensor weights = at::index_select(all, 0, groups);
  return at::bmm(x, transposes ? weights.transpose(1, 2) : weights);
}

/// Adds the sum of dy^T x over the blocks of each group to `sums` [groups, out, in].
void add_gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& groups, const at::Tensor& sums) {
  if (gpu::add_grouped_products(dy, x, groups, sums)) return;
  constexpr int64_t kMostElements = int64_t{1} << 26;
  const at::NoTF32Guard exact;  // a sum of products with 1
  const int64_t of_block = sums.size(1) * sums.size(2), at_once = std::max<int64_t>(1, kMostElements / of_block);
  at::Tensor flat = sums.as_strided({sums.size(0), of_block}, {sums.stride(0), 1});
  const at::Tensor numbers = at::arange(sums.size(0), groups.options()).unsqueeze(1);
  for (int64_t begin = 0; begin < groups.size(0); begin += at_once) {
    const int64_t count = std::min(at_once, groups.size(0) - begin);
    const at::Tensor left = dy.narrow(0, begin, count).transpose(1, 2), right = x.narrow(0, begin, count);
    const at::Tensor each = at::bmm(cast(left, sums.scalar_type()), cast(right, sums.scalar_type()));
    const at::Tensor belongs = numbers.eq(groups.narrow(0, begin, count)).to(sums.scalar_type());
    flat.addmm_(belongs, each.view({count, of_block}));
  }
}

struct GroupedLinear : torch::autograd::Function<GroupedLinear> {
  /// Reads only the copies of the weights.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::TensorList weights,
                            const at::Tensor& copies, const at::Tensor& groups) {
    variable_list saved{x, copies, groups};
    saved.insert(saved.end(), weights.begin(), weights.end());
    context->save_for_backward(saved);
    return products(x, copies, groups, /*transposes=*/true);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the grouped dense layer has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &copies = saved[1], &groups = saved[2], dy = gradients[0].contiguous();
    const variable_list weights(saved.begin() + 3, saved.end());
    variable_list results(weights.size() + 3);
    if (context->needs_input_grad(0)) results[0] = products(dy, copies, groups, /*transposes=*/false);
    bool is_needed = false;
    for (size_t i = 0; i < weights.size(); ++i) is_needed = is_needed || context->needs_input_grad(1 + i);
    if (!is_needed) return results;
    const at::Tensor place = place_of(weights);
    if (place.defined()) {
      add_gradients(dy, x, groups, place);
      return results;
    }
    const at::Tensor sums = at::zeros(copies.sizes(), weights[0].options().requires_grad(false));
    add_gradients(dy, x, groups, sums);
    for (size_t i = 0; i < weights.size(); ++i) results[1 + i] = sums.select(0, static_cast<int64_t>(i));
    return results;
  }

 private:
  /// Returns the weights' .grad as one tensor, if a sum can be added to it; else undefined.
  static at::Tensor place_of(const variable_list& weights) {
    std::vector<at::Tensor> places;
    for (const at::Tensor& weight : weights) {
      if (!weight.is_leaf() || !weight.grad().defined()) return {};
      places.push_back(weight.grad());
    }
    return as_one(places);
  }
};

/// Frozen weights of all groups.
struct FrozenGroups final : torch::CustomClassHolder {
  std::vector<FrozenMatrix> weights;

  /// Makes them as one tensor [groups, out, in].
  at::Tensor in(at::ScalarType type) const {
    const FrozenMatrix& first = weights.front();
    const at::Tensor all =
        at::empty({std::ssize(weights), first.sizes[0], first.sizes[1]}, first.parts[0].options().dtype(type));
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i].read(weights[i].parts, all.select(0, static_cast<int64_t>(i)));
    return all;
  }
  variable_list parts() const {
    variable_list all;
    for (const FrozenMatrix& weight : weights) all.insert(all.end(), weight.parts.begin(), weight.parts.end());
    return all;
  }
  /// Returns the same weights, read from these parts.
  FrozenGroups of(const variable_list& parts) const {
    FrozenGroups groups;
    auto next = parts.begin();
    for (const FrozenMatrix& weight : weights) {
      const auto end = next + std::ssize(weight.parts);
      groups.weights.push_back({.parts = {next, end}, .read = weight.read, .sizes = weight.sizes});
      next = end;
    }
    return groups;
  }
};

struct GroupedFrozenLinear : torch::autograd::Function<GroupedFrozenLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& groups,
                            const c10::intrusive_ptr<FrozenGroups>& frozen) {
    // The parts, because ranks may share them out: what is saved is gathered again.
    context->save_for_backward(frozen->parts());
    context->saved_data["groups"] = groups;
    context->saved_data["frozen"] = c10::IValue::make_capsule(frozen);
    return products(x, frozen->in(x.scalar_type()), groups, /*transposes=*/true);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto frozen = c10::static_intrusive_pointer_cast<FrozenGroups>(context->saved_data["frozen"].toCapsule());
    const at::Tensor dy = gradients[0].contiguous(),
                     all = frozen->of(context->get_saved_variables()).in(dy.scalar_type());
    return {products(dy, all, context->saved_data["groups"].toTensor(), /*transposes=*/false), {}, {}};
  }
};

std::vector<at::Tensor> read_of(const Policy& policy, const std::vector<at::Tensor>& weights) {
  std::vector<at::Tensor> read;
  for (const at::Tensor& weight : weights)
    read.push_back(weight.scalar_type() == policy.compute ? weight : device::working_view(weight, policy.compute));
  return read;
}

}  // namespace

RowBlocks::RowBlocks(const at::Tensor& groups, int64_t count)
    : rows_in_block_(rows_in_block(groups.size(0), count)),
      blocks_((groups.size(0) + std::min(count, groups.size(0)) * (rows_in_block_ - 1)) / rows_in_block_) {
  const auto numbers = [&](int64_t size) { return at::arange(size, groups.options()); };
  const auto [sorted, order] = at::sort(groups, /*stable=*/std::optional<bool>(true), /*dim=*/0);
  const at::Tensor each = numbers(count), begins = at::searchsorted(sorted, each);
  const at::Tensor ends = at::searchsorted(sorted, each, /*out_int32=*/false, /*right=*/true);
  const at::Tensor blocks = at::div(ends - begins + (rows_in_block_ - 1), rows_in_block_, "floor");
  const at::Tensor last = at::cumsum(blocks, 0);
  // Blocks without rows, which only fill up, go to the last group: their rows are zeros.
  groups_ = at::searchsorted(last, numbers(blocks_), /*out_int32=*/false, /*right=*/true).clamp_max_(count - 1);
  const at::Tensor shift = (last - blocks) * rows_in_block_ - begins;
  const at::Tensor places = at::index_select(shift, 0, sorted) + numbers(groups.size(0));
  places_ = at::empty_like(order).scatter_(0, order, places);
}

at::Tensor RowBlocks::arranged(const at::Tensor& x) const {
  const at::Tensor empty = at::zeros({blocks_ * rows_in_block_, x.size(1)}, x.options());
  return at::index_copy(empty, 0, places_, x).view({blocks_, rows_in_block_, x.size(1)});
}

at::Tensor RowBlocks::in_order(const at::Tensor& y) const {
  return at::index_select(y.reshape({-1, y.size(-1)}), 0, places_);
}

bool lie_evenly(const Policy& policy, const std::vector<at::Tensor>& weights) {
  const std::vector<at::Tensor> read = read_of(policy, weights);
  return std::ranges::all_of(read, [](const at::Tensor& one) { return one.defined(); }) && as_one(read).defined();
}

at::Tensor grouped_linear(const Policy& policy, const at::Tensor& x, const at::Tensor& groups,
                          const std::vector<at::Tensor>& weights) {
  const std::vector<at::Tensor> read = read_of(policy, weights);
  GPUTRAIN_ASSERT(lie_evenly(policy, weights), "the weights of groups must lie at equal distances");
  return GroupedLinear::apply(cast(x, policy.compute), at::TensorList(weights), as_one(read), groups);
}

at::Tensor grouped_linear(const Policy& policy, const at::Tensor& x, const at::Tensor& groups,
                          const std::vector<FrozenMatrix>& weights) {
  const auto frozen = c10::make_intrusive<FrozenGroups>();
  frozen->weights = weights;
  return GroupedFrozenLinear::apply(cast(x, policy.compute), groups, frozen);
}

}  // namespace gputrain::ops
