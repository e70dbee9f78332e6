#include "gputrain/ops/adapted_linear.hpp"

#include <cstddef>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "cpu/wide_products.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/ops/linear.hpp"

namespace gputrain::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

std::vector<int64_t> with_columns(at::IntArrayRef sizes, int64_t columns) {
  std::vector<int64_t> changed = sizes.vec();
  changed.back() = columns;
  return changed;
}

/// Returns the operand of products for a parameter: itself, its working copy, or a cast.
at::Tensor read_of(const at::Tensor& parameter, at::ScalarType type) {
  if (!parameter.defined()) return {};
  if (parameter.scalar_type() == type) return parameter.detach();
  const at::Tensor copy = device::working_view(parameter, type);
  return copy.defined() ? copy : parameter.detach().to(type);
}

/// Computes left^T right in the type of a parameter. A GPU rounds the sum only once, to that type.
at::Tensor gradient_of(const at::Tensor& left, const at::Tensor& right, double scale, at::ScalarType type) {
  const bool is_wider = left.is_cuda() && left.scalar_type() != type && type == at::kFloat;
  const at::Tensor product = is_wider ? at::mm(left.t(), right, type) : at::mm(left.t(), right).to(type);
  return product.mul_(scale);
}

/// An adapter.
struct Part {
  size_t layer;
  double scale;
  bool has_own = false;  // A reads rows of its own, after dropout
};

/// The matrices A of the adapters that read x itself, above each other: one product reads x for all of them.
class Stack {
 public:
  Stack(const std::vector<Part>& parts, const std::vector<at::Tensor>& as) {
    std::vector<at::Tensor> stacked;
    for (size_t i = 0; i < parts.size(); ++i) {
      begins_.push_back(rows_);
      if (parts[i].has_own) continue;
      stacked.push_back(as[i]);
      rows_ += as[i].size(0);
    }
    if (!stacked.empty()) matrix_ = stacked.size() == 1 ? stacked[0] : at::cat(stacked);
  }
  const at::Tensor& matrix() const noexcept { return matrix_; }  // [rows, in]; undefined: there is none
  int64_t rows() const noexcept { return rows_; }
  /// Returns the part of an adapter in dimension `dim` of a tensor that has the stack's rows there.
  at::Tensor of(size_t part, const at::Tensor& whole, int64_t dim, int64_t rank) const {
    return whole.narrow(dim, begins_[part], rank);
  }

 private:
  at::Tensor matrix_;
  std::vector<int64_t> begins_;  // by part
  int64_t rows_ = 0;
};

/// The operands of all layers and adapters.
struct Read {
  std::vector<FrozenMatrix> weights;  // one for each layer
  std::vector<at::Tensor> biases;     // likewise
  std::vector<at::Tensor> as, bs;     // one for each adapter
};

/// A frozen weight without its parts, which autograd keeps.
struct Kept {
  FrozenMatrix matrix;
  size_t parts;  // number of them
};

struct AdapterPlan final : torch::CustomClassHolder {
  std::vector<Part> parts;
  std::vector<Kept> weights;  // one for each layer
  at::ScalarType master = at::kFloat;
};

/// Takes the next `count` tensors of a list.
class Taker {
 public:
  explicit Taker(const variable_list& all) : all_(all) {}
  at::Tensor one() { return all_[next_++]; }
  variable_list several(size_t count) {
    const auto begin = all_.begin() + static_cast<std::ptrdiff_t>(next_);
    next_ += count;
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

 private:
  const variable_list& all_;
  size_t next_ = 0;
};

struct AdaptedLinears : torch::autograd::Function<AdaptedLinears> {
  /// `as`, `bs`: of each part; `own`: rows of those that have their own.
  static variable_list forward(AutogradContext* context, const at::Tensor& x, at::TensorList as, at::TensorList bs,
                               at::TensorList own, const Read& read, const c10::intrusive_ptr<AdapterPlan>& plan) {
    GPUTRAIN_ASSERT(as.size() == plan->parts.size() && bs.size() == as.size(), "each adapter has two matrices");
    const at::Tensor rows = rows_of(x);
    variable_list results, narrow, own_rows;
    for (size_t i = 0; i < read.weights.size(); ++i)
      results.push_back(read.weights[i].times_rows(rows, read.biases[i]));
    for (const at::Tensor& one : own) own_rows.push_back(rows_of(one));
    const Stack stack(plan->parts, read.as);
    const at::Tensor stacked = stack.matrix().defined() ? at::mm(rows, stack.matrix().t()) : at::Tensor();
    for (size_t i = 0, used = 0; i < plan->parts.size(); ++i) {
      const Part& part = plan->parts[i];
      narrow.push_back(part.has_own ? at::mm(own_rows[used++], read.as[i].t())
                                    : stack.of(i, stacked, 1, read.as[i].size(0)));
      results[part.layer].addmm_(narrow.back(), read.bs[i].t(), /*beta=*/1, /*alpha=*/part.scale);
    }
    // No views for autograd, which would refuse to overwrite them.
    for (at::Tensor& y : results) y = at::_unsafe_view(y, with_columns(x.sizes(), y.size(1)));
    // Weights too, because ranks may share them out: what is saved is gathered again.
    variable_list saved{rows};
    const auto save = [&saved](at::TensorList more) { saved.insert(saved.end(), more.begin(), more.end()); };
    for (const FrozenMatrix& weight : read.weights) save(weight.parts);
    for (const at::TensorList more :
         {at::TensorList(read.as), at::TensorList(read.bs), at::TensorList(narrow), at::TensorList(own_rows)})
      save(more);
    context->set_materialize_grads(false);  // some results may not be learned from
    context->save_for_backward(saved);
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    context->saved_data["sizes"] = x.sizes().vec();
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "adapted layers have no second derivative");
    const auto plan = c10::static_intrusive_pointer_cast<AdapterPlan>(context->saved_data["plan"].toCapsule());
    const auto saved = context->get_saved_variables();
    Taker take(saved);
    const at::Tensor rows = take.one();
    std::vector<FrozenMatrix> weights;
    for (const Kept& kept : plan->weights) weights.emplace_back(kept.matrix).parts = take.several(kept.parts);
    const variable_list as = take.several(plan->parts.size()), bs = take.several(plan->parts.size()),
                        narrow = take.several(plan->parts.size());
    const std::vector<int64_t> sizes = context->saved_data["sizes"].toIntVector();
    variable_list dy(gradients.size()), da(plan->parts.size()), db(plan->parts.size()), downs;
    for (size_t i = 0; i < dy.size(); ++i)
      if (gradients[i].defined()) dy[i] = rows_of(gradients[i]).contiguous();
    at::Tensor dx;
    const auto add_product = [&dx](const at::Tensor& left, const at::Tensor& right) {
      dx.defined() ? static_cast<void>(dx.addmm_(left, right)) : static_cast<void>(dx = at::mm(left, right));
    };
    const auto add = [&](const FrozenMatrix& weight, const at::Tensor& of_layer) {
      if (!dx.defined())
        dx = weight.times_gradient(of_layer);
      else if (cpu::product_type(of_layer) == of_layer.scalar_type())
        dx.addmm_(of_layer, weight.in(of_layer.scalar_type()));
      else
        dx.add_(weight.times_gradient(of_layer));
    };
    const bool needs_dx = context->needs_input_grad(0);
    for (size_t i = 0; needs_dx && i < dy.size(); ++i)
      if (dy[i].defined()) add(weights[i], dy[i]);
    const Stack stack(plan->parts, as);
    const at::Tensor dstacked = at::zeros({rows.size(0), stack.rows()}, rows.options());
    for (size_t i = 0; i < plan->parts.size(); ++i) {
      const Part& part = plan->parts[i];
      const at::Tensor own = part.has_own ? take.one() : at::Tensor();
      if (part.has_own) downs.emplace_back();
      if (!dy[part.layer].defined()) continue;
      at::Tensor dnarrow = part.has_own ? at::empty_like(narrow[i]) : stack.of(i, dstacked, 1, as[i].size(0));
      at::mm_out(dnarrow, dy[part.layer], bs[i]).mul_(part.scale);
      db[i] = gradient_of(dy[part.layer], narrow[i], part.scale, plan->master);
      if (!part.has_own) continue;
      da[i] = gradient_of(dnarrow, own, 1, plan->master);
      downs.back() = at::mm(dnarrow, as[i]).view(sizes);
    }
    if (stack.matrix().defined()) {
      if (needs_dx) add_product(dstacked, stack.matrix());
      const at::Tensor all = gradient_of(dstacked, rows, 1, plan->master);
      for (size_t i = 0; i < plan->parts.size(); ++i)
        if (db[i].defined() && !plan->parts[i].has_own) da[i] = stack.of(i, all, 0, as[i].size(0));
    }
    variable_list results{dx.defined() ? dx.view(sizes) : dx};
    for (const variable_list* more : {&da, &db, &downs}) results.insert(results.end(), more->begin(), more->end());
    results.resize(results.size() + 2);  // no gradients for `read` and `plan`
    return results;
  }
};

}  // namespace

std::vector<at::Tensor> adapted_linears(const Policy& policy, const at::Tensor& x,
                                        const std::vector<AdaptedLinear>& layers) {
  const auto plan = c10::make_intrusive<AdapterPlan>();
  plan->master = policy.master;
  Read read;
  std::vector<at::Tensor> as, bs, own;
  for (size_t i = 0; i < layers.size(); ++i) {
    const AdaptedLinear& layer = layers[i];
    GPUTRAIN_ASSERT(!layer.weight.parts[0].requires_grad(), "an adapted layer's weight is frozen");
    FrozenMatrix& weight = read.weights.emplace_back(layer.weight);
    if (!weight.read) weight.parts[0] = read_of(weight.parts[0], policy.compute);
    plan->weights.push_back(
        {.matrix = {.parts = {}, .read = weight.read, .sizes = weight.sizes}, .parts = weight.parts.size()});
    read.biases.push_back(read_of(layer.bias, policy.compute));
    if (!layer.a.defined()) continue;
    plan->parts.push_back({.layer = i, .scale = layer.scale, .has_own = layer.dropped.defined()});
    read.as.push_back(read_of(layer.a, policy.compute));
    read.bs.push_back(read_of(layer.b, policy.compute));
    as.push_back(layer.a);
    bs.push_back(layer.b);
    if (layer.dropped.defined()) own.push_back(cast(layer.dropped, policy.compute));
  }
  return AdaptedLinears::apply(cast(x, policy.compute), at::TensorList(as), at::TensorList(bs), at::TensorList(own),
                               read, plan);
}

}  // namespace gputrain::ops
