#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <torch/csrc/autograd/custom_function.h>

#include "dispatch/gpu.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/ops/attention.hpp"
#include "gputrain/ops/recorded.hpp"

namespace gputrain::ops {
namespace {

// out = a * cosine + sign * b * sine, computed in the tables' type.
void write_turned(at::Tensor out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& cosine,
                  const at::Tensor& sine, double sign) {
  if (out.scalar_type() == cosine.scalar_type()) {
    at::mul_out(out, a, cosine).addcmul_(b, sine, sign);
  } else {
    out.copy_(at::mul(a, cosine).addcmul_(b, sine, sign));
  }
}

at::Tensor turned(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, double direction) {
  at::Tensor out = at::empty_like(x);
  const int64_t half = cosine.size(-1), rest = x.size(-1) - 2 * half;
  const at::Tensor low = x.narrow(-1, 0, half), high = x.narrow(-1, half, half);
  write_turned(out.narrow(-1, 0, half), low, high, cosine, sine, -direction);
  write_turned(out.narrow(-1, half, half), high, low, cosine, sine, direction);
  if (rest > 0) out.narrow(-1, 2 * half, rest).copy_(x.narrow(-1, 2 * half, rest));
  return out;
}

/// Returns the same by operators that return what they compute.
at::Tensor turned_by_parts(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  const int64_t half = cosine.size(-1), rest = x.size(-1) - 2 * half;
  const at::Tensor low = x.narrow(-1, 0, half), high = x.narrow(-1, half, half);
  Tensors parts{at::sub(at::mul(low, cosine), at::mul(high, sine)), at::add(at::mul(high, cosine), at::mul(low, sine))};
  if (rest > 0) parts.push_back(x.narrow(-1, 2 * half, rest));
  return at::cat(parts, -1);
}

// The gradient of a rotation is the inverse rotation, grown by as much, so the input is not saved.
struct Rotate : torch::autograd::Function<Rotate> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return turned(x, cosine, sine, 1);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto tables = context->get_saved_variables();
    return {turned(gradients[0], tables[0], tables[1], -1), {}, {}};
  }
};

}  // namespace

at::Tensor rotate(const at::Tensor& x, const RotaryTable& table) {
  const int64_t time = x.size(-2);
  GPUTRAIN_ASSERT(time <= table.cosine.size(-2), "more positions than the rotary table has");
  const int64_t turning = 2 * table.cosine.size(-1);
  GPUTRAIN_ASSERT(turning <= x.size(-1), "fewer channels than the rotary table has");
  const Tensors inputs{x, table.cosine.narrow(-2, 0, time), table.sine.narrow(-2, 0, time)};
  if (is_recorded()) return turned_by_parts(inputs[0], inputs[1], inputs[2]);
  const OpImpl reference = [](const Tensors& t) { return Tensors{Rotate::apply(t[0], t[1], t[2])}; };
  if (!gpu::is_here(x) || turning < x.size(-1)) return reference(inputs)[0];
  const bool has_tables_of_rows = table.cosine.dim() > 2;
  return run("rotate", inputs, {.batched = has_tables_of_rows ? inputs.size() : 1}, gpu::rotate(x), reference)[0];
}

}  // namespace gputrain::ops
