// Stochastic gradient descent with momentum in torch.optim.SGD's form (the rate multiplies the velocity, not the
// gradient). Nesterov: Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML
// 2013.
#include <string>
#include <vector>

#include <ATen/ops/_fused_sgd.h>
#include <fmt/format.h>

#include "gputrain/optim/optimizer.hpp"
#include "shared_keys.hpp"

namespace gputrain::optim {
namespace {

struct SgdSpec {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;

  static void describe(config::Description<SgdSpec>& d) {
    d.summary("stochastic gradient descent");
    d.key("momentum", &SgdSpec::momentum, "share of the velocity kept from step to step").at_least(0).below(1);
    d.key("nesterov", &SgdSpec::nesterov, "Nesterov's look-ahead; needs momentum").change(config::Change::needs_accept);
    describe_weight_decay(d, "share of a weight added to its gradient");
    d.check([](const SgdSpec& spec, config::SpecIssues& issues) {
      if (spec.nesterov && spec.momentum == 0) {
        issues.add("nesterov", "nesterov needs a momentum above 0", "set momentum, for instance momentum: 0.9");
      }
    });
  }
};

class Sgd final : public Optimizer {
 public:
  Sgd(const SgdSpec& spec, const device::Arena& arena)
      : spec_(spec),
        arena_(arena),
        values_(arena.kept_values()),
        gradients_(arena.kept_gradients()),
        update_(flat_stretches(update_groups(arena, spec.weight_decay))) {
    if (spec.momentum > 0) velocity_ = arena.make_state();
    for (const UpdateGroup& group : update_groups(arena, spec.weight_decay)) {
      groups_.push_back({.of = group,
                         .values = group.values(arena),
                         .gradients = group.gradients(arena),
                         .velocities = velocity_.defined() ? group.states(velocity_) : std::vector<at::Tensor>{}});
    }
  }

  void step(const StepScalars& scalars) override {
    const ops::SgdRule rule{.momentum = spec_.momentum, .nesterov = spec_.nesterov};
    const at::Tensor copy = copy_to_write(arena_);
    const bool is_done =
        update_.sgd({values_, gradients_, velocity_, copy}, {scalars.lr, scalars.found_inf, scalars.divisor}, rule);
    if (!is_done) update_by_aten(scalars);
    note_update(arena_, is_done && copy.defined());
  }

  State state() override {
    State state;
    if (velocity_.defined()) state.flat.emplace_back("momentum_buffer", velocity_);
    return state;
  }

  std::string describe() const override {
    return fmt::format("sgd momentum {}{} decay {}", spec_.momentum, spec_.nesterov ? " nesterov" : "",
                       spec_.weight_decay);
  }

 private:
  struct Group {
    UpdateGroup of;
    std::vector<at::Tensor> values, gradients, velocities;
  };

  void update_by_aten(const StepScalars& scalars) {
    for (Group& group : groups_) {
      // is_first_step is always false: a velocity of zero gives the same, also if the first steps were skipped.
      at::_fused_sgd_(group.values, group.gradients, group.velocities, group.of.weight_decay, spec_.momentum,
                      group.of.rate(scalars.lr),
                      /*dampening=*/0, spec_.nesterov, /*maximize=*/false, /*is_first_step=*/false, scalars.divisor,
                      scalars.found_inf);
    }
  }

  SgdSpec spec_;
  const device::Arena& arena_;
  at::Tensor velocity_, values_, gradients_;
  ops::FlatUpdate update_;
  std::vector<Group> groups_;
};

const config::Registered<Sgd, SgdSpec> registered_sgd{catalog(), "sgd", "gradient descent with momentum"};

}  // namespace
}  // namespace gputrain::optim
