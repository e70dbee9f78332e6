// LAMB: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", ICLR 2020; the
// arithmetic of timm's Lamb without its clipping of the gradient, which train.max_grad_norm does.
#include <map>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "../guarded_step.hpp"
#include "shared_keys.hpp"

namespace gputrain::optim {
namespace {

struct LambSpec {
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-6;
  double weight_decay = 0.01;
  bool always_adapt = false;
  bool trust_clip = false;

  static void describe(config::Description<LambSpec>& d) {
    d.summary("Adam whose step in each tensor is in proportion to the tensor's norm");
    describe_betas(d);
    describe_eps(d).above(0);
    describe_weight_decay(d, "share of a weight added to its update");
    d.key("always_adapt", &LambSpec::always_adapt, "tensors without weight decay follow their norm, too")
        .change(config::Change::needs_accept);
    d.key("trust_clip", &LambSpec::trust_clip, "the norm of a tensor only shortens its step")
        .change(config::Change::needs_accept);
  }
};

class Lamb final : public Optimizer {
 public:
  static Abilities abilities() { return {.whole_tensors = true}; }

  Lamb(const LambSpec& spec, const device::Arena& arena)
      : spec_(spec),
        arena_(arena),
        first_(arena.make_state()),
        second_(arena.make_state()),
        step_(at::zeros({}, arena.options().dtype(at::kFloat))) {
    for (const OwnedTensor& tensor : owned_tensors(arena, spec.weight_decay)) {
      tensors_.push_back({.of = tensor,
                          .first = arena.state_view(first_, tensor.segment),
                          .second = arena.state_view(second_, tensor.segment)});
    }
  }

  void step(const StepScalars& scalars) override {
    const GuardedStep guarded(scalars, arena_.kept_values());
    const CountedStep counted(step_, scalars);
    std::map<double, Corrections> corrections;  // keys: number of updates that a tensor has missed
    for (const Tensor& tensor : tensors_) {
      const auto late = since_.find(tensor.of.segment.name);
      const double since = late == since_.end() ? 0 : late->second;
      auto known = corrections.find(since);
      if (known == corrections.end()) known = corrections.emplace(since, corrections_at(since)).first;
      update(tensor, guarded, known->second);
    }
    note_update(arena_, /*wrote_copy=*/false);
  }

  State state() override {
    State state{.flat = {{"exp_avg", first_}, {"exp_avg_sq", second_}}, .scalars = {{"step", step_}}};
    add_counts(state, since_, step_);
    return state;
  }

  void count_since(const std::map<std::string, double>& since) override { since_ = since; }
  double updates() const override { return step_.item<double>(); }

  std::string describe() const override {
    return fmt::format("lamb betas {} {} decay {}", spec_.betas[0], spec_.betas[1], spec_.weight_decay);
  }

 private:
  struct Tensor {
    OwnedTensor of;
    at::Tensor first, second;
  };
  /// The factors that correct the averages for their begin at 0. 0-dim.
  struct Corrections {
    at::Tensor first, second_root;
  };

  Corrections corrections_at(double since) const {
    const at::Tensor step = step_.to(at::kDouble) - since;
    return {.first = (1 - at::pow(spec_.betas[0], step)).reciprocal_().to(arena_.type()),
            .second_root = at::rsqrt(1 - at::pow(spec_.betas[1], step)).to(arena_.type())};
  }

  void update(const Tensor& tensor, const GuardedStep& guarded, const Corrections& corrections) const {
    const at::Tensor gradient = guarded.gradient(tensor.of.gradient), &value = tensor.of.value;
    tensor.first.lerp_(gradient, guarded.share(1 - spec_.betas[0]));
    tensor.second.mul_(guarded.complement(1 - spec_.betas[1])).addcmul_(gradient, gradient, 1 - spec_.betas[1]);
    const at::Tensor root = tensor.second.sqrt().mul_(corrections.second_root).add_(spec_.eps);
    const at::Tensor update = tensor.first.mul(corrections.first).div_(root);
    const double decay = tensor.of.weight_decay;
    if (decay != 0) update.add_(value, decay);
    at::Tensor rate = guarded.rate(tensor.of.lr_factor);
    if (decay != 0 || spec_.always_adapt) {
      const at::Tensor norm = value.norm(), update_norm = update.norm();
      at::Tensor ratio = at::where(norm.gt(0).logical_and(update_norm.gt(0)), norm / update_norm, at::ones_like(norm));
      if (spec_.trust_clip) ratio = ratio.clamp_max(1);
      rate = rate * ratio;
    }
    value.sub_(update.mul_(rate));
  }

  LambSpec spec_;
  const device::Arena& arena_;
  at::Tensor first_, second_, step_;
  std::vector<Tensor> tensors_;
  std::map<std::string, double> since_;
};

const config::Registered<Lamb, LambSpec> registered_lamb{catalog(), "lamb", "Adam by the norms of tensors"};

}  // namespace
}  // namespace gputrain::optim
