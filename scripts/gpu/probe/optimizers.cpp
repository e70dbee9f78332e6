#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "sections.hpp"
#include "timing.hpp"

namespace probe {
namespace {

constexpr double kLr = 1e-3, kBeta1 = 0.9, kBeta2 = 0.95, kDecay = 0.1, kEps = 1e-8;

struct Types {
  at::ScalarType parameter, gradient, state;
};

at::Tensor scalar(double value) { return at::full({}, value, at::TensorOptions().device(at::kCUDA).dtype(at::kFloat)); }

struct Adam {
  std::vector<at::Tensor> parameters, gradients, means, squares, steps;

  void step(const at::Tensor& lr, const std::optional<at::Tensor>& scale = {},
            const std::optional<at::Tensor>& bad = {}) {
    at::_fused_adamw_(parameters, gradients, means, squares, {}, steps, lr, kBeta1, kBeta2, kDecay, kEps, false, false,
                      scale, bad);
  }
};

Adam make_adam(const std::vector<int64_t>& sizes, Types types) {
  Adam adam;
  for (const int64_t size : sizes) {
    adam.parameters.push_back(noise({size}, types.parameter, 0.02));
    adam.gradients.push_back(noise({size}, types.gradient, 0.01));
    adam.means.push_back(at::zeros_like(adam.parameters.back(), at::TensorOptions().dtype(types.state)));
    adam.squares.push_back(at::zeros_like(adam.means.back()));
    adam.steps.push_back(scalar(0));
  }
  return adam;
}

/// Five Adam steps with one gradient, in fp64.
at::Tensor adam_reference(at::Tensor parameter, const at::Tensor& gradient) {
  at::Tensor mean = at::zeros_like(gradient), square = at::zeros_like(gradient);
  for (int t = 1; t <= 5; ++t) {
    parameter = parameter * (1 - kLr * kDecay);
    mean = mean * kBeta1 + gradient * (1 - kBeta1);
    square = square * kBeta2 + gradient * gradient * (1 - kBeta2);
    const at::Tensor denominator = (square / (1 - std::pow(kBeta2, t))).sqrt() + kEps;
    parameter = parameter - mean / (1 - std::pow(kBeta1, t)) / denominator * kLr;
  }
  return parameter;
}

void accepted_types(Report& report) {
  const std::array<std::pair<const char*, at::ScalarType>, 2> kinds{{{"fp32", at::kFloat}, {"bf16", at::kBFloat16}}};
  for (const auto& [p_name, p] : kinds) {
    for (const auto& [g_name, g] : kinds) {
      for (const auto& [s_name, s] : kinds) {
        Record what;
        what.set("what", "fused AdamW, types").set("parameter", p_name).set("gradient", g_name).set("state", s_name);
        report.attempt("optimizers", what, [&, types = Types{p, g, s}](Record& record) {
          Adam adam = make_adam({1 << 20}, types);
          const at::Tensor expected =
              adam_reference(adam.parameters[0].to(at::kDouble), adam.gradients[0].to(at::kDouble));
          for (int i = 1; i <= 5; ++i) {
            adam.steps[0].add_(1);
            adam.step(scalar(kLr));
          }
          record.set("relative_error", relative_error(adam.parameters[0], expected));
        });
      }
    }
  }
}

void loss_scale(Report& report) {
  report.attempt("optimizers", Record().set("what", "fused AdamW, found_inf and grad_scale"), [](Record& record) {
    Adam adam = make_adam({1 << 20}, {at::kFloat, at::kFloat, at::kFloat});
    const at::Tensor before = adam.parameters[0].clone(), gradient = adam.gradients[0].clone();
    adam.steps[0].add_(1);
    adam.step(scalar(kLr), scalar(4), at::ones({1}, before.options()));
    record.set("bad_step_leaves_parameter", adam.parameters[0].equal(before));
    record.set("bad_step_leaves_state", adam.means[0].abs().max().item<double>() == 0);
    record.set("bad_step_leaves_gradient", adam.gradients[0].equal(gradient));
    adam.step(scalar(kLr), scalar(4), at::zeros({1}, before.options()));
    record.set("good_step_divides_gradient", adam.gradients[0].equal(gradient / 4));
  });
  report.attempt("optimizers", Record().set("what", "non-finite check and scale update"), [](Record& record) {
    std::vector<at::Tensor> gradients{noise({1 << 20}, at::kFloat), noise({1 << 10}, at::kBFloat16)};
    gradients[1][5] = INFINITY;
    at::Tensor found = at::zeros({1}, gradients[0].options()), scale = at::full({1}, 1024.0, gradients[0].options());
    at::Tensor growth = at::zeros({1}, gradients[0].options().dtype(at::kInt));
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, scale.reciprocal());
    record.set("mixed_types_found", found.item<double>());
    at::_amp_update_scale_(scale, growth, found, 2.0, 0.5, 2000);
    record.set("scale_after", scale.item<double>());
  });
}

/// GPT-2 124M as one flat buffer and as its 148 tensors.
void arena_times(Report& report) {
  std::vector<int64_t> tensors{38633472, 786432};  // embeddings, then twelve blocks, then the last norm
  for (int block = 0; block < 12; ++block) {
    for (const int64_t size : {768, 768, 1769472, 2304, 589824, 768, 768, 768, 2359296, 3072, 2359296, 768})
      tensors.push_back(size);
  }
  tensors.insert(tensors.end(), {768, 768});
  int64_t total = 0;
  for (const int64_t size : tensors) total += size;
  for (const bool flat : {true, false}) {
    report.attempt("optimizers", Record().set("what", "124M parameters").set("flat", flat), [&](Record& record) {
      Adam adam = make_adam(flat ? std::vector<int64_t>{total} : tensors, {at::kFloat, at::kFloat, at::kFloat});
      const at::Tensor lr = scalar(kLr), inverse = at::ones({1}, lr.options());
      at::Tensor found = at::zeros({1}, lr.options());
      record.set("adamw_ms", median_ms([&] { adam.step(lr); }));
      record.set("sgd_ms", median_ms([&] {
                   at::_fused_sgd_(adam.parameters, adam.gradients, adam.means, 1e-4, 0.9, lr, 0.0, false, false,
                                   false);
                 }));
      record.set("norm_ms", median_ms([&] { at::_foreach_norm(adam.gradients, 2.0, at::kFloat); }));
      record.set("unscale_ms",
                 median_ms([&] { at::_amp_foreach_non_finite_check_and_unscale_(adam.gradients, found, inverse); }));
      if (flat) {
        at::Tensor half = adam.parameters[0].to(at::kBFloat16);
        record.set("to_bf16_ms", median_ms([&] { half.copy_(adam.parameters[0]); }));
        record.set("vector_norm_ms", median_ms([&] { at::linalg_vector_norm(adam.gradients[0]); }));
        record.set("zero_ms", median_ms([&] { adam.gradients[0].zero_(); }));
      }
    });
  }
}

}  // namespace

void probe_optimizers(Report& report) {
  accepted_types(report);
  loss_scale(report);
  arena_times(report);
}

}  // namespace probe
