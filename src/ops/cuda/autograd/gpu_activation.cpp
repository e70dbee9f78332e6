#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "../../dispatch/gpu.hpp"
#include "../kernels/activation.hpp"
#include "apply_activation.hpp"
#include "gputrain/core/error.hpp"
#include "launching.hpp"

namespace gputrain::ops {
namespace cuda {

Element element_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kBFloat16) return Element::bf16;
  return tensor.scalar_type() == at::kHalf ? Element::fp16 : Element::fp32;
}

bool is_stored(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Blocks that share the rows: a few per multiprocessor over all columns, each with enough rows for its threads.
int parts_for(int64_t rows, int64_t width) {
  const int64_t strips = std::max<int64_t>(1, width / 256);
  return static_cast<int>(std::clamp<int64_t>(16 * multiprocessors() / strips, 1, std::max<int64_t>(1, rows / 8)));
}

ActivationRows activation_rows(ActivationKind kind, const at::Tensor& x) {
  const int64_t width = x.size(-1), rows = x.numel() / width;
  return {.element = element_of(x),
          .kind = kind,
          .rows = rows,
          .width = width,
          .x = read(x),
          .y = nullptr,
          .dy = nullptr,
          .dx = nullptr,
          .parts = parts_for(rows, width)};
}

}  // namespace

at::Tensor apply_activation(const at::Tensor& x, ActivationKind kind) {
  const at::Tensor y = at::empty_like(x);
  ActivationRows rows = activation_rows(kind, x);
  rows.y = write(y);
  activation_forward(rows, current_stream());
  check_launches();
  return y;
}

at::Tensor activation_gradient(const at::Tensor& x, const at::Tensor& dy, ActivationKind kind) {
  const at::Tensor dx = at::empty_like(x);
  ActivationRows rows = activation_rows(kind, x);
  rows.dy = read(dy);
  rows.dx = write(dx);
  activation_backward(rows, current_stream());
  check_launches();
  return dx;
}

at::Tensor to_activation_gradient(const at::Tensor& x, const at::Tensor& dy, ActivationKind kind, bool wants_sums) {
  ActivationRows rows = activation_rows(kind, x);
  rows.dy = rows.dx = write(dy);
  at::Tensor partials, sums;
  if (wants_sums) {
    partials = at::empty({rows.parts, rows.width}, x.options().dtype(at::kFloat));
    sums = at::empty({rows.width}, partials.options());
    rows.partials = write<float>(partials);
  }
  activation_backward(rows, current_stream());
  if (wants_sums) {
    const int64_t half = rows.width / 2;  // column_sums() sums two rows: here the halves of one
    auto* const out = write<float>(sums);
    column_sums({.partials = rows.partials,
                 .out = {{.values = out}, {.values = out + half}},
                 .parts = rows.parts,
                 .width = half},
                current_stream());
  }
  check_launches();
  return sums;
}

namespace {

struct ActivationFunction : torch::autograd::Function<ActivationFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t kind) {
    context->save_for_backward({x});
    context->saved_data["curve"] = kind;
    return apply_activation(x, static_cast<ActivationKind>(kind));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused activation has no second derivative");
    const auto kind = static_cast<ActivationKind>(context->saved_data["curve"].toInt());
    return {activation_gradient(context->get_saved_variables()[0], gradients[0].contiguous(), kind), {}};
  }
};

/// Returns the elements between neighbouring rows; 0 if rows are not evenly spaced.
int64_t row_stride(const at::Tensor& x) {
  if (x.dim() < 2 || x.stride(-1) != 1) return 0;
  for (int64_t dim = 0; dim + 2 < x.dim(); ++dim) {
    if (x.stride(dim) != x.stride(dim + 1) * x.size(dim + 1)) return 0;
  }
  return x.stride(-2);
}

GatedRows gated_rows(const at::Tensor& gate, const at::Tensor& up) {
  const int64_t width = gate.size(-1), rows = gate.numel() / width;
  return {.element = element_of(gate),
          .rows = rows,
          .width = width,
          .stride = row_stride(gate),
          .gradient_stride = width,
          .gate = read(gate),
          .up = read(up),
          .y = nullptr,
          .dy = nullptr,
          .dgate = nullptr,
          .dup = nullptr,
          .parts = parts_for(rows, width)};
}

bool are_halves(const at::Tensor& gate, const at::Tensor& up) {
  const int64_t width = gate.size(-1);
  return row_stride(gate) == 2 * width && up.is_alias_of(gate) && up.storage_offset() == gate.storage_offset() + width;
}

at::Tensor contiguous_like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }

struct Gated : torch::autograd::Function<Gated> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    const at::Tensor y = contiguous_like(gate);
    GatedRows rows = gated_rows(gate, up);
    rows.y = write(y);
    gated_forward(rows, current_stream());
    check_launches();
    context->save_for_backward({gate, up});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused gate has no second derivative");
    const auto saved = context->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous();
    GatedRows rows = gated_rows(saved[0], saved[1]);
    at::Tensor dgate, dup;
    if (are_halves(saved[0], saved[1])) {
      // Side by side, as split_columns() takes them without a copy.
      rows.gradient_stride = rows.stride;
      std::vector<int64_t> sizes = dy.sizes().vec();
      sizes.back() = rows.stride;
      const at::Tensor both = at::empty(sizes, dy.options());
      dgate = both.narrow(-1, 0, rows.width);
      dup = both.narrow(-1, rows.width, rows.width);
    } else {
      dgate = contiguous_like(dy);
      dup = contiguous_like(dy);
    }
    rows.dy = read(dy);
    rows.dgate = write(dgate);
    rows.dup = write(dup);
    gated_backward(rows, current_stream());
    check_launches();
    return {dgate, dup};
  }
};

at::Tensor turned(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, float direction) {
  const at::Tensor y = at::empty_like(x);  // dense; keeps the order of x's dims in memory
  const auto strides = [](const at::Tensor& t) { return Rotation::Strides{t.stride(0), t.stride(1), t.stride(2)}; };
  cuda::rotate({.element = element_of(x),
                .batch = x.size(0),
                .heads = x.size(1),
                .time = x.size(2),
                .half = x.size(3) / 2,
                .x_strides = strides(x),
                .y_strides = strides(y),
                .direction = direction,
                .x = read(x),
                .cosine = read<float>(cosine),
                .sine = read<float>(sine),
                .tables_of_rows = cosine.dim() == 4,
                .y = write(y)},
               current_stream());
  check_launches();
  return y;
}

struct Turn : torch::autograd::Function<Turn> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return turned(x, cosine, sine, 1);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    GPUTRAIN_ASSERT(!at::GradMode::is_enabled(), "the fused rotation has no second derivative");
    const auto tables = context->get_saved_variables();
    const at::Tensor& dy = gradients[0];
    return {turned(dy.stride(-1) == 1 ? dy : dy.contiguous(), tables[0], tables[1], -1), {}, {}};
  }
};

}  // namespace
}  // namespace cuda

namespace gpu {

bool is_here(const at::Tensor& x) { return cuda::runs_kernels(x) && cuda::is_stored(x) && x.numel() > 0; }

OpImpl activation(const at::Tensor& x, Activation activation) {
  if (!is_here(x) || !x.is_contiguous() || x.dim() == 0) return {};
  cuda::ActivationKind kind{};
  switch (activation) {
    case Activation::gelu:
      kind = cuda::ActivationKind::gelu;
      break;
    case Activation::gelu_tanh:
      kind = cuda::ActivationKind::gelu_tanh;
      break;
    case Activation::silu:
      kind = cuda::ActivationKind::silu;
      break;
    case Activation::relu:
    case Activation::tanh:
    case Activation::hardswish:
      return {};
  }
  return
      [kind](const Tensors& t) { return Tensors{cuda::ActivationFunction::apply(t[0], static_cast<int64_t>(kind))}; };
}

OpImpl swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const int64_t stride = is_here(gate) ? cuda::row_stride(gate) : 0;
  if (stride == 0 || cuda::row_stride(up) != stride || up.scalar_type() != gate.scalar_type()) return {};
  return [](const Tensors& t) { return Tensors{cuda::Gated::apply(t[0], t[1])}; };
}

OpImpl rotate(const at::Tensor& x) {
  if (!is_here(x) || x.dim() != 4 || x.stride(-1) != 1 || x.size(-1) % 2 != 0) return {};
  return [](const Tensors& t) { return Tensors{cuda::Turn::apply(t[0], t[1], t[2])}; };
}

}  // namespace gpu
}  // namespace gputrain::ops
