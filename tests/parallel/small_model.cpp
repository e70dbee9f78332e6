#include "parallel/small_model.hpp"

#include <cstdio>
#include <cstdlib>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "comm/rank_processes.hpp"

namespace gputrain::testing {
namespace {

constexpr int64_t kInputs = 8, kHidden = 16, kOutputs = 3;

std::vector<at::Tensor> make_parameters() {
  const auto real = at::TensorOptions().dtype(at::kDouble);
  std::vector<at::Tensor> made;
  for (const auto& [out, in] :
       {std::pair{kHidden, kInputs}, {kHidden, kHidden}, {kHidden, kHidden}, {kOutputs, kHidden}}) {
    made.push_back(at::empty({out, in}, real).requires_grad_(true));
    made.push_back(at::empty({out}, real).requires_grad_(true));
  }
  return made;
}

/// Adds the weight's gradient in place, like the layers on a GPU.
struct AddingLinear : torch::autograd::Function<AddingLinear> {
  using Saved = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
    context->save_for_backward({x, weight});
    return at::linear(x, weight, bias);
  }
  static Saved backward(torch::autograd::AutogradContext* context, const Saved& gradients) {
    const Saved saved = context->get_saved_variables();
    const at::Tensor gradient = gradients[0].t().matmul(saved[0]);
    const bool has_place = saved[1].grad().defined();
    if (has_place) saved[1].grad().add_(gradient);
    return {gradients[0].matmul(saved[1]), has_place ? at::Tensor() : gradient, gradients[0].sum({0})};
  }
};

std::vector<device::ArenaTensor> arena_tensors(const std::vector<at::Tensor>& parameters) {
  std::vector<device::ArenaTensor> all;
  for (size_t i = 0; i < parameters.size(); ++i) {
    all.push_back({"unit" + std::to_string(i / 2) + (i % 2 == 0 ? ".weight" : ".bias"), parameters[i],
                   static_cast<int64_t>(i / 2), i % 2 == 0});
  }
  return all;
}

}  // namespace

// Parts of one unit each.
SmallModel::SmallModel(device::Kept kept, int64_t shards)
    : parameters(make_parameters()),
      arena(arena_tensors(parameters),
            {.gradients = kept, .shards = shards, .parts = {.bytes = 2600, .first_bytes = 600}}) {
  const at::NoGradGuard no_grad;
  double phase = 0.3;
  for (const at::Tensor& parameter : parameters) {
    parameter.copy_(at::sin(at::arange(parameter.numel(), at::kDouble) + phase).view(parameter.sizes()) * 0.4);
    phase += 1.7;
  }
}

at::Tensor SmallModel::loss_sum(const at::Tensor& inputs, const at::Tensor& targets, bool with_third) const {
  const auto& p = parameters;
  const auto layer = [&](const at::Tensor& x, size_t at) {
    if (adds_to_place) return AddingLinear::apply(x, p[at], p[at + 1]);
    return at::linear(x, p[at], p[at + 1]);
  };
  at::Tensor x = at::tanh(layer(inputs, 0));
  x = at::tanh(layer(x, 2));
  if (with_third) x = at::tanh(layer(x, 4));
  const at::Tensor difference = layer(x, 6) - targets;
  return (difference * difference).sum();
}

void SmallModel::clear_gradients() { arena.clear_gradients(); }

void SmallModel::descend(double rate) {
  const at::NoGradGuard no_grad;
  at::Tensor(arena.values()).sub_(arena.gradients() * rate);
}

Rows rows(int64_t step, int64_t begin, int64_t end) {
  const at::Tensor index = at::arange(begin, end, at::kDouble).unsqueeze(1) + static_cast<double>(step) * 100.0;
  return {at::sin(index * 1.3 + at::arange(kInputs, at::kDouble)),
          at::sin(index * 0.7 + at::arange(kOutputs, at::kDouble))};
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

at::Tensor owned_of(const device::Arena& arena, const at::Tensor& flat) {
  std::vector<at::Tensor> pieces{flat.narrow(0, 0, 0)};
  for (const device::Piece& piece : arena.owned())
    pieces.push_back(flat.narrow(0, piece.range.begin, piece.range.size()));
  return at::cat(pieces);
}

void expect_success(const std::string& body, int world, const std::map<std::string, std::string>& extra) {
  RankProcesses ranks(body, world, extra);
  for (const auto& result : ranks.finish()) EXPECT_EQ(result.exit_code, 0) << result.output;
}

int fail(const char* what, double value) {
  std::printf("%s: %g\n", what, value);
  return 98;
}

int64_t given(const char* name) { return std::atoll(std::getenv(name)); }

}  // namespace gputrain::testing
