// Stochastic gradient descent with momentum in torch.optim.SGD's form (the rate multiplies the velocity, not the
// gradient). Nesterov: Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML
// 2013.
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/_fused_sgd.h>
#include <fmt/format.h>

#include "../state_parts.hpp"
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
  static Abilities abilities() { return {.in_parts = true}; }

  Sgd(const SgdSpec& spec, const device::Arena& arena)
      : spec_(spec),
        arena_(arena),
        values_(arena.kept_values()),
        gradients_(arena.kept_gradients()),
        velocity_(arena, std::vector<at::ScalarType>(spec.momentum > 0 ? 1 : 0, arena.state_type())) {
    for (std::vector<UpdateGroup>& part : velocity_.split(update_groups(arena, spec.weight_decay)))
      parts_.push_back({.on_gpu = ops::FlatUpdate(flat_stretches(part)), .groups = std::move(part)});
  }

  void step(const StepScalars& scalars) override {
    const ops::SgdRule rule{.momentum = spec_.momentum, .nesterov = spec_.nesterov};
    const at::Tensor copy = copy_to_write(arena_);
    bool wrote_copy = copy.defined();
    velocity_.each([&](size_t part, const std::vector<at::Tensor>& velocities) {
      const at::Tensor velocity = velocities.empty() ? at::Tensor() : velocities[0];
      const bool is_done = parts_[part].on_gpu.sgd({values_, gradients_, velocity, copy},
                                                   {scalars.lr, scalars.found_inf, scalars.divisor}, rule);
      if (!is_done) update_by_aten(parts_[part].groups, velocity, scalars);
      wrote_copy = wrote_copy && is_done;
    });
    note_update(arena_, wrote_copy);
  }

  State state() override {
    State state;
    for (const at::Tensor& velocity : velocity_.whole()) state.flat.emplace_back("momentum_buffer", velocity);
    return state;
  }
  int64_t bytes_on_host() const override { return velocity_.bytes_on_host(); }

  std::string describe() const override {
    return fmt::format("sgd momentum {}{} decay {}", spec_.momentum, spec_.nesterov ? " nesterov" : "",
                       spec_.weight_decay);
  }

 private:
  struct Part {
    ops::FlatUpdate on_gpu;
    std::vector<UpdateGroup> groups;
  };

  void update_by_aten(const std::vector<UpdateGroup>& groups, const at::Tensor& velocity, const StepScalars& scalars) {
    for (const UpdateGroup& group : groups) {
      const auto velocities = velocity.defined() ? group.states(velocity) : std::vector<at::Tensor>{};
      // is_first_step is always false: a velocity of zero gives the same, also if the first steps were skipped.
      at::_fused_sgd_(group.values(arena_), group.gradients(arena_), velocities, group.weight_decay, spec_.momentum,
                      group.rate(scalars.lr),
                      /*dampening=*/0, spec_.nesterov, /*maximize=*/false, /*is_first_step=*/false, scalars.divisor,
                      scalars.found_inf);
    }
  }

  SgdSpec spec_;
  const device::Arena& arena_;
  at::Tensor values_, gradients_;
  StateParts velocity_;
  std::vector<Part> parts_;
};

const config::Registered<Sgd, SgdSpec> registered_sgd{catalog(), "sgd", "gradient descent with momentum"};

}  // namespace
}  // namespace gputrain::optim
