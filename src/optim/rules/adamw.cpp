// AdamW: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019; torch.optim.AdamW's arithmetic.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "gputrain/optim/optimizer.hpp"

namespace gputrain::optim {
namespace {

struct AdamWSpec {
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;

  static void describe(config::Description<AdamWSpec>& d) {
    d.summary("Adam with decoupled weight decay");
    d.key("betas", &AdamWSpec::betas, "decay rates of the running averages of the gradient and of its square")
        .elements(2)
        .at_least(0)
        .below(1)
        .change(config::Change::needs_accept)
        .aliases({"adam_betas"});
    d.key("eps", &AdamWSpec::eps, "added to the root of the second average")
        .at_least(0)
        .change(config::Change::needs_accept)
        .aliases({"adam_epsilon"});
    d.key("weight_decay", &AdamWSpec::weight_decay,
          "share of a weight, times the learning rate, subtracted at each step")
        .at_least(0)
        .change(config::Change::needs_accept)
        .aliases({"wd"});
  }
};

class AdamW final : public Optimizer {
 public:
  AdamW(const AdamWSpec& spec, const device::Arena& arena)
      : spec_(spec),
        arena_(arena),
        first_(arena.make_state()),
        second_(arena.make_state()),
        step_(at::zeros({}, arena.options().dtype(at::kFloat))),
        values_(arena.kept_values()),
        gradients_(arena.kept_gradients()) {
    build_groups();
  }

  void step(const StepScalars& scalars) override {
    step_.add_(1);
    const ops::AdamWRule rule{.beta1 = spec_.betas[0], .beta2 = spec_.betas[1], .eps = spec_.eps};
    const at::Tensor copy = copy_to_write(arena_);
    const bool is_done = update_.adamw({values_, gradients_, first_, second_, step_, copy},
                                       {scalars.lr, scalars.found_inf, scalars.divisor}, rule);
    if (!is_done) update_by_aten(scalars);
    note_update(arena_, is_done && copy.defined());
    // The fused kernels skip the update themselves. Take the count back here, without reading the device.
    if (scalars.found_inf) step_.sub_(scalars.found_inf->squeeze(0));
  }

  State state() override {
    State state{.flat = {{"exp_avg", first_}, {"exp_avg_sq", second_}}, .scalars = {{"step", step_}}};
    for (const auto& [name, count] : since_)
      state.scalars.emplace_back(kSincePrefix + name, at::full_like(step_, count));
    return state;
  }

  void count_since(const std::map<std::string, double>& since) override {
    if (since == since_) return;
    since_ = since;
    earlier_.push_back(std::move(update_));
    build_groups();
  }
  double updates() const override { return step_.item<double>(); }

  std::string describe() const override {
    return fmt::format("adamw betas {} {} decay {}", spec_.betas[0], spec_.betas[1], spec_.weight_decay);
  }

 private:
  struct Group {
    UpdateGroup of;
    std::vector<at::Tensor> values, gradients, first, second;
  };

  void build_groups() {
    const auto groups = update_groups(arena_, spec_.weight_decay, since_);
    update_ = ops::FlatUpdate(flat_stretches(groups));
    groups_.clear();
    for (const UpdateGroup& group : groups) {
      groups_.push_back({.of = group,
                         .values = group.values(arena_),
                         .gradients = group.gradients(arena_),
                         .first = group.states(first_),
                         .second = group.states(second_)});
    }
  }

  void update_by_aten(const StepScalars& scalars) {
    for (Group& group : groups_) {
      const at::Tensor step = group.of.since == 0 ? step_ : step_.sub(group.of.since);
      const std::vector<at::Tensor> steps(group.values.size(), step);
      at::_fused_adamw_(group.values, group.gradients, group.first, group.second, {}, steps, group.of.rate(scalars.lr),
                        spec_.betas[0], spec_.betas[1], group.of.weight_decay, spec_.eps, /*amsgrad=*/false,
                        /*maximize=*/false, scalars.divisor, scalars.found_inf);
    }
  }

  AdamWSpec spec_;
  const device::Arena& arena_;
  at::Tensor first_, second_, step_, values_, gradients_;
  ops::FlatUpdate update_{{}};
  std::vector<ops::FlatUpdate> earlier_;  // whose tables a recorded step may read
  std::vector<Group> groups_;
  std::map<std::string, double> since_;
};

const config::Registered<AdamW, AdamWSpec> registered_adamw{catalog(), "adamw", "Adam with decoupled weight decay"};

}  // namespace
}  // namespace gputrain::optim
