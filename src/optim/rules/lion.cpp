// Lion: Chen et al., "Symbolic discovery of optimization algorithms", NeurIPS 2023; the arithmetic of timm's Lion.
#include <string>
#include <vector>

#include <fmt/format.h>

#include "../guarded_step.hpp"
#include "../state_parts.hpp"
#include "shared_keys.hpp"

namespace gputrain::optim {
namespace {

struct LionSpec {
  std::vector<double> betas{0.9, 0.99};
  double weight_decay = 0;

  static void describe(config::Description<LionSpec>& d) {
    d.summary("the sign of a running average");
    d.key("betas", &LionSpec::betas, "shares kept: of the average in the update, and of the average from step to step")
        .elements(2)
        .at_least(0)
        .below(1)
        .change(config::Change::needs_accept);
    describe_weight_decay(d);
  }
};

class Lion final : public Optimizer {
 public:
  static Abilities abilities() { return {.in_parts = true}; }

  Lion(const LionSpec& spec, const device::Arena& arena)
      : spec_(spec),
        arena_(arena),
        average_(arena, {arena.state_type()}),
        parts_(average_.split(update_groups(arena, spec.weight_decay))) {}

  void step(const StepScalars& scalars) override {
    const GuardedStep guarded(scalars, arena_.kept_values());
    const at::Tensor in_update = guarded.share(1 - spec_.betas[0]), in_average = guarded.share(1 - spec_.betas[1]);
    average_.each([&](size_t part, const std::vector<at::Tensor>& states) {
      for (const UpdateGroup& group : parts_[part]) {
        const at::Tensor rate = guarded.rate(group.lr_factor);
        const at::Tensor decay = guarded.decay(group.lr_factor, group.weight_decay);
        for (const UpdatePiece& piece : pieces_of(group, arena_, states)) {
          const at::Tensor gradient = guarded.gradient(piece.gradient), &average = piece.states[0];
          const at::Tensor update = average.lerp(gradient, in_update).sign_().mul_(rate);
          if (group.weight_decay != 0) piece.value.mul_(decay);
          piece.value.sub_(update);
          average.lerp_(gradient, in_average);
        }
      }
    });
    note_update(arena_, /*wrote_copy=*/false);
  }

  State state() override { return {.flat = {{"exp_avg", average_.whole()[0]}}, .scalars = {}}; }
  int64_t bytes_on_host() const override { return average_.bytes_on_host(); }

  std::string describe() const override {
    return fmt::format("lion betas {} {} decay {}", spec_.betas[0], spec_.betas[1], spec_.weight_decay);
  }

 private:
  LionSpec spec_;
  const device::Arena& arena_;
  StateParts average_;
  std::vector<std::vector<UpdateGroup>> parts_;
};

const config::Registered<Lion, LionSpec> registered_lion{catalog(), "lion", "the sign of a running average"};

}  // namespace
}  // namespace gputrain::optim
