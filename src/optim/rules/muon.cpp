// Muon: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024, and Liu et al., "Muon is
// scalable for LLM training", 2025; the arithmetic of torch.optim.Muon, and of torch.optim.AdamW for what is no hidden
// matrix.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "../guarded_step.hpp"
#include "gputrain/config/name_patterns.hpp"
#include "gputrain/core/log.hpp"
#include "shared_keys.hpp"

namespace gputrain::optim {
namespace {

struct MuonSpec {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t ns_steps = 5;
  std::string adjust_lr_fn = "match_rms_adamw";
  double weight_decay = 0.1;
  std::vector<std::string> adamw{"lm_head*", "head.*", "fc.*", "classifier*", "score*"};
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;

  static void describe(config::Description<MuonSpec>& d) {
    d.summary("orthogonal updates of hidden matrices; AdamW for everything else");
    d.key("momentum", &MuonSpec::momentum, "share of a matrix's velocity kept from step to step")
        .at_least(0)
        .below(1)
        .change(config::Change::needs_accept);
    d.key("nesterov", &MuonSpec::nesterov, "Nesterov's look-ahead").change(config::Change::needs_accept);
    d.key("ns_steps", &MuonSpec::ns_steps, "iterations that make an update orthogonal")
        .range(1, 99)
        .change(config::Change::needs_accept);
    d.key("adjust_lr_fn", &MuonSpec::adjust_lr_fn,
          "rate of a matrix by its size: match_rms_adamw suits rates of AdamW; original is above it for tall ones")
        .choices({"match_rms_adamw", "original"})
        .change(config::Change::needs_accept);
    describe_weight_decay(d);
    d.key("adamw", &MuonSpec::adamw,
          "patterns of matrices that AdamW updates, such as output layers; layers of a sequential are named by their "
          "number: 5.*; AdamW updates embeddings in any case");
    d.key("betas", &MuonSpec::betas, "of AdamW: decay rates of the averages of the gradient and of its square")
        .elements(2)
        .at_least(0)
        .below(1)
        .change(config::Change::needs_accept)
        .aliases({"adamw_betas", "adam_betas"});
    describe_eps(d, "of AdamW: added to the root of the second average").at_least(0);
  }

  bool takes(const device::Segment& segment) const {
    return segment.role == device::Role::weight && segment.sizes.size() == 2 &&
           std::ranges::none_of(adamw, [&](const auto& pattern) { return config::matches(pattern, segment.name); });
  }
};

/// Makes singular values near 1 of those of `matrix`, by a quintic Newton-Schulz iteration in bf16.
at::Tensor orthogonal(const at::Tensor& matrix, int64_t steps) {
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315, kEps = 1e-7;
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = matrix.to(at::kBFloat16);
  if (is_tall) x = x.t();
  x = x.div(x.norm().clamp_min(kEps));
  for (int64_t step = 0; step < steps; ++step) {
    const at::Tensor gram = x.matmul(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
  }
  return is_tall ? x.t() : x;
}

class Muon final : public Optimizer {
 public:
  static Abilities abilities() { return {.whole_tensors = true}; }

  Muon(const MuonSpec& spec, const device::Arena& arena)
      : spec_(spec),
        arena_(arena),
        first_(arena.make_state()),
        second_(arena.make_state()),
        step_(at::zeros({}, arena.options().dtype(at::kFloat))) {
    if (std::ranges::none_of(arena.segments(), [&](const device::Segment& one) { return spec.takes(one); }))
      log::warning(
          "optimizer.type: muon updates matrices of hidden layers, and there are none here beside those of "
          "optimizer.adamw: AdamW updates all. Filters of convolutions are no matrices");
    for (const OwnedTensor& tensor : owned_tensors(arena, spec.weight_decay)) {
      if (spec.takes(tensor.segment)) {
        matrices_.push_back({.of = tensor, .velocity = arena.state_view(first_, tensor.segment)});
      }
    }
    build_groups();
  }

  void step(const StepScalars& scalars) override {
    const GuardedStep guarded(scalars, arena_.kept_values());
    for (const Matrix& matrix : matrices_) update(matrix, guarded);
    const CountedStep counted(step_, scalars);
    for (Group& group : groups_) {
      const std::vector<at::Tensor> steps(group.values.size(), group.since == 0 ? step_ : step_.sub(group.since));
      const at::Tensor rate = group.lr_factor == 1 ? scalars.lr : scalars.lr.mul(group.lr_factor);
      at::_fused_adamw_(group.values, group.gradients, group.first, group.second, {}, steps, rate, spec_.betas[0],
                        spec_.betas[1], group.weight_decay, spec_.eps, /*amsgrad=*/false, /*maximize=*/false,
                        scalars.divisor, scalars.found_inf);
    }
    note_update(arena_, /*wrote_copy=*/false);
  }

  /// Returns the state: exp_avg of a matrix is its velocity; its exp_avg_sq stays 0.
  State state() override {
    State state{.flat = {{"exp_avg", first_}, {"exp_avg_sq", second_}}, .scalars = {{"step", step_}}};
    add_counts(state, since_, step_);
    return state;
  }

  void count_since(const std::map<std::string, double>& since) override {
    if (since == since_) return;
    since_ = since;
    build_groups();
  }
  double updates() const override { return step_.item<double>(); }

  std::string describe() const override {
    return fmt::format("muon momentum {} decay {} for {} matrices, adamw for others", spec_.momentum,
                       spec_.weight_decay, matrices_.size());
  }

 private:
  struct Matrix {
    OwnedTensor of;
    at::Tensor velocity;
  };
  /// Tensors for AdamW with equal settings.
  struct Group {
    double weight_decay, lr_factor, since;
    std::vector<at::Tensor> values, gradients, first, second;
  };

  void build_groups() {
    groups_.clear();
    for (const OwnedTensor& tensor : owned_tensors(arena_, spec_.weight_decay)) {
      if (spec_.takes(tensor.segment)) continue;
      const auto late = since_.find(tensor.segment.name);
      const double since = late == since_.end() ? 0 : late->second;
      auto group = std::ranges::find_if(groups_, [&](const Group& one) {
        return std::tie(one.weight_decay, one.lr_factor, one.since) ==
               std::tie(tensor.weight_decay, tensor.lr_factor, since);
      });
      if (group == groups_.end()) {
        group = groups_.insert(group, {tensor.weight_decay, tensor.lr_factor, since, {}, {}, {}, {}});
      }
      group->values.push_back(tensor.value);
      group->gradients.push_back(tensor.gradient);
      group->first.push_back(arena_.state_view(first_, tensor.segment));
      group->second.push_back(arena_.state_view(second_, tensor.segment));
    }
  }

  double rate_factor(const at::Tensor& matrix) const {
    const auto rows = static_cast<double>(matrix.size(0)), columns = static_cast<double>(matrix.size(1));
    if (spec_.adjust_lr_fn == "original") return std::sqrt(std::max(1.0, rows / columns));
    return 0.2 * std::sqrt(std::max(rows, columns));
  }

  void update(const Matrix& matrix, const GuardedStep& guarded) const {
    const at::Tensor gradient = guarded.gradient(matrix.of.gradient), &value = matrix.of.value;
    matrix.velocity.lerp_(gradient, guarded.share(1 - spec_.momentum));
    const at::Tensor ahead = spec_.nesterov ? gradient.lerp(matrix.velocity, spec_.momentum) : matrix.velocity;
    const at::Tensor update = orthogonal(ahead, spec_.ns_steps).to(arena_.type());
    const double factor = matrix.of.lr_factor;
    if (matrix.of.weight_decay != 0) value.mul_(guarded.decay(factor, matrix.of.weight_decay));
    value.sub_(update.mul(guarded.rate(factor * rate_factor(value))));
  }

  MuonSpec spec_;
  const device::Arena& arena_;
  at::Tensor first_, second_, step_;
  std::vector<Matrix> matrices_;
  std::vector<Group> groups_;
  std::map<std::string, double> since_;
};

const config::Registered<Muon, MuonSpec> registered_muon{catalog(), "muon",
                                                         "orthogonal updates of matrices; AdamW for the rest"};

}  // namespace
}  // namespace gputrain::optim
