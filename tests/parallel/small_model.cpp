#include "parallel/small_model.hpp"

#include <cstdio>
#include <cstdlib>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

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

std::vector<device::Resident> residents(const std::vector<at::Tensor>& parameters) {
  std::vector<device::Resident> all;
  for (size_t i = 0; i < parameters.size(); ++i) {
    all.push_back({"unit" + std::to_string(i / 2) + (i % 2 == 0 ? ".weight" : ".bias"), parameters[i],
                   static_cast<int64_t>(i / 2), i % 2 == 0});
  }
  return all;
}

}  // namespace

SmallModel::SmallModel(device::Gradients kept) : parameters(make_parameters()), arena(residents(parameters), kept) {
  const at::NoGradGuard no_grad;
  double phase = 0.3;
  for (const at::Tensor& parameter : parameters) {
    parameter.copy_(at::sin(at::arange(parameter.numel(), at::kDouble) + phase).view(parameter.sizes()) * 0.4);
    phase += 1.7;
  }
}

at::Tensor SmallModel::loss_sum(const at::Tensor& inputs, const at::Tensor& targets, bool with_third) const {
  const auto& p = parameters;
  at::Tensor x = at::tanh(at::linear(inputs, p[0], p[1]));
  x = at::tanh(at::linear(x, p[2], p[3]));
  if (with_third) x = at::tanh(at::linear(x, p[4], p[5]));
  const at::Tensor difference = at::linear(x, p[6], p[7]) - targets;
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
