// LARS: You, Gitman and Ginsburg, "Large batch training of convolutional networks", 2017; the arithmetic of timm's
// Lars.
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "../guarded_step.hpp"

namespace gputrain::optim {
namespace {

struct LarsSpec {
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double trust_coeff = 1e-3;
  double eps = 1e-8;
  bool always_adapt = false;
  bool trust_clip = false;

  static void describe(config::Description<LarsSpec>& d) {
    d.summary("gradient descent whose step in each tensor is in proportion to the tensor's norm");
    d.key("momentum", &LarsSpec::momentum, "share of the velocity kept from step to step").at_least(0).below(1);
    d.key("nesterov", &LarsSpec::nesterov, "Nesterov's look-ahead; needs momentum")
        .change(config::Change::needs_accept);
    d.key("weight_decay", &LarsSpec::weight_decay, "share of a weight added to its gradient")
        .at_least(0)
        .change(config::Change::needs_accept)
        .aliases({"wd"});
    d.key("trust_coeff", &LarsSpec::trust_coeff, "norm of a step in proportion to the norm of its tensor")
        .above(0)
        .change(config::Change::needs_accept)
        .aliases({"trust_coefficient", "eta"});
    d.key("eps", &LarsSpec::eps, "added to the norm of the gradient").at_least(0).change(config::Change::needs_accept);
    d.key("always_adapt", &LarsSpec::always_adapt, "tensors without weight decay follow their norm, too")
        .change(config::Change::needs_accept);
    d.key("trust_clip", &LarsSpec::trust_clip, "the norm of a tensor only shortens its step (LARC)")
        .change(config::Change::needs_accept);
    d.check([](const LarsSpec& spec, config::SpecIssues& issues) {
      if (spec.nesterov && spec.momentum == 0) {
        issues.add("nesterov", "nesterov needs a momentum above 0", "set momentum, for instance momentum: 0.9");
      }
    });
  }
};

class Lars final : public Optimizer {
 public:
  static Abilities abilities() { return {.whole_tensors = true}; }

  Lars(const LarsSpec& spec, const device::Arena& arena) : spec_(spec), arena_(arena) {
    if (spec.momentum > 0) velocity_ = arena.make_state();
    for (const OwnedTensor& tensor : owned_tensors(arena, spec.weight_decay)) {
      tensors_.push_back(
          {.of = tensor, .velocity = velocity_.defined() ? arena.state_view(velocity_, tensor.segment) : at::Tensor()});
    }
  }

  void step(const StepScalars& scalars) override {
    const GuardedStep guarded(scalars, arena_.kept_values());
    for (const Tensor& tensor : tensors_) update(tensor, guarded);
    note_update(arena_, /*wrote_copy=*/false);
  }

  State state() override {
    State state;
    if (velocity_.defined()) state.flat.emplace_back("momentum_buffer", velocity_);
    return state;
  }

  std::string describe() const override {
    return fmt::format("lars momentum {}{} decay {}", spec_.momentum, spec_.nesterov ? " nesterov" : "",
                       spec_.weight_decay);
  }

 private:
  struct Tensor {
    OwnedTensor of;
    at::Tensor velocity;
  };

  void update(const Tensor& tensor, const GuardedStep& guarded) const {
    const at::Tensor& value = tensor.of.value;
    const double decay = tensor.of.weight_decay;
    at::Tensor update = guarded.gradient(tensor.of.gradient);
    if (decay != 0 || spec_.always_adapt) {
      const at::Tensor norm = value.norm(), gradient_norm = update.norm();
      const at::Tensor denominator = gradient_norm + norm * decay + spec_.eps;
      at::Tensor ratio = trust_ratio(norm, gradient_norm, norm * spec_.trust_coeff / denominator);
      if (spec_.trust_clip) {
        const at::Tensor lr = (guarded.lr() * tensor.of.lr_factor).to(arena_.type());
        ratio = (ratio / lr).clamp_max(1);
      }
      update = update.add(value, decay).mul_(ratio);
    }
    if (tensor.velocity.defined()) {
      tensor.velocity.mul_(guarded.complement(1 - spec_.momentum)).add_(update.mul(guarded.share(1)));
      update = spec_.nesterov ? update.add(tensor.velocity, spec_.momentum) : tensor.velocity;
    }
    value.sub_(update.mul(guarded.rate(tensor.of.lr_factor)));
  }

  LarsSpec spec_;
  const device::Arena& arena_;
  at::Tensor velocity_;
  std::vector<Tensor> tensors_;
};

const config::Registered<Lars, LarsSpec> registered_lars{catalog(), "lars", "momentum by the norms of tensors"};

}  // namespace
}  // namespace gputrain::optim
