// Schedule-free AdamW: Defazio et al., "The road less scheduled", NeurIPS 2024; the arithmetic of their package
// schedulefree.
//
// They keep z, which is updated as by AdamW without momentum, its weighted average x, and train at
// y = beta1 x + (1 - beta1) z. Here the arena's values are y, and the state is x - y, from which z follows. It begins
// at zero, takes as much memory as AdamW's first average, and gives x by one addition.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include "../guarded_step.hpp"
#include "shared_keys.hpp"

namespace gputrain::optim {
namespace {

struct ScheduleFreeAdamWSpec {
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  double r = 0;
  double weight_lr_power = 2;

  static void describe(config::Description<ScheduleFreeAdamWSpec>& d) {
    d.summary("AdamW whose average of weights stands in for a falling rate");
    describe_betas(
        d, "how much of the average the weights that train are made of; decay rate of the squared gradient's average");
    describe_eps(d, "added to the root of the squared gradient's average").above(0);
    describe_weight_decay(d);
    d.key("r", &ScheduleFreeAdamWSpec::r, "later steps count more in the average: by their number to this power")
        .at_least(0)
        .change(config::Change::needs_accept);
    d.key("weight_lr_power", &ScheduleFreeAdamWSpec::weight_lr_power,
          "steps of a warm-up count less in the average: by the highest rate so far to this power")
        .at_least(0)
        .change(config::Change::needs_accept);
  }
};

class ScheduleFreeAdamW final : public Optimizer {
 public:
  static Abilities abilities() { return {.has_average = true}; }

  ScheduleFreeAdamW(const ScheduleFreeAdamWSpec& spec, const device::Arena& arena)
      : spec_(spec),
        arena_(arena),
        offset_(arena.make_state()),
        second_(arena.make_state()),
        step_(at::zeros({}, arena.options().dtype(at::kFloat))),
        highest_lr_(at::zeros({}, arena.options().dtype(at::kDouble))) {
    build_groups();
  }

  void step(const StepScalars& scalars) override {
    const GuardedStep guarded(scalars, arena_.kept_values());
    const CountedStep counted(step_, scalars);
    highest_lr_.copy_(guarded.either(at::maximum(highest_lr_, guarded.lr()), highest_lr_));
    std::map<double, at::Tensor> shares;  // share of the new z in the average, 0-dim double
    for (auto& [since, sum] : weight_sums_) {
      const at::Tensor weight =
          at::pow(step_.to(at::kDouble) - since, spec_.r) * at::pow(highest_lr_, spec_.weight_lr_power);
      sum.copy_(guarded.either(sum + weight, sum));
      shares[since] = at::where(sum.gt(0), weight / sum, at::zeros_like(sum));
    }
    for (const Group& group : groups_) update(group, shares.at(group.of.since), guarded);
    note_update(arena_, /*wrote_copy=*/false);
  }

  State state() override {
    State state{.flat = {{kAverageOffset, offset_}, {"exp_avg_sq", second_}},
                .scalars = {{"step", step_}, {"highest_lr", highest_lr_}}};
    for (const auto& [since, sum] : weight_sums_)
      state.scalars.emplace_back(since == 0 ? "weight_sum" : fmt::format("weight_sum.{}", since), sum);
    add_counts(state, since_, step_);
    return state;
  }

  void count_since(const std::map<std::string, double>& since) override {
    if (since.empty() && since_.empty()) return;
    since_ = since;
    build_groups();
  }
  double updates() const override { return step_.item<double>(); }

  bool has_average() const override { return true; }

  void exchange_average() override {
    const bool gives_average = trained_.empty();
    for (const Group& group : groups_) {
      for (const UpdatePiece& piece : group.pieces) {
        if (!gives_average) {
          piece.value.copy_(trained_.front());
          trained_.erase(trained_.begin());
          continue;
        }
        trained_.push_back(piece.value.clone());
        piece.value.add_(piece.states[0]);
      }
    }
    note_update(arena_, /*wrote_copy=*/false);
  }

  std::string describe() const override {
    return fmt::format("schedule_free_adamw betas {} {} decay {}", spec_.betas[0], spec_.betas[1], spec_.weight_decay);
  }

 private:
  struct Group {
    UpdateGroup of;
    std::vector<UpdatePiece> pieces;
  };

  void build_groups() {
    groups_.clear();
    std::map<double, at::Tensor> sums{{0, at::zeros_like(highest_lr_)}};
    for (const UpdateGroup& group : update_groups(arena_, spec_.weight_decay, since_))
      groups_.push_back({.of = group, .pieces = pieces_of(group, arena_, {offset_, second_})});
    for (const auto& [name, since] : since_) sums.try_emplace(since, at::zeros_like(highest_lr_));
    for (auto& [since, sum] : sums) {
      if (const auto known = weight_sums_.find(since); known != weight_sums_.end()) sum = known->second;
    }
    weight_sums_ = std::move(sums);
  }

  void update(const Group& group, const at::Tensor& share, const GuardedStep& guarded) const {
    const double beta1 = spec_.betas[0], beta2 = spec_.betas[1];
    const at::Tensor step = step_.to(at::kDouble) - group.of.since, lr = guarded.lr() * group.of.lr_factor;
    const at::Tensor of_offset = guarded.guarded(share * (beta1 / (1 - beta1)));
    const at::Tensor of_update = guarded.guarded(lr * ((1 - share) * beta1 - 1));
    const at::Tensor into_offset = guarded.guarded(lr * (1 - beta1)), kept_offset = 1 - guarded.guarded(share);
    const at::Tensor correction = at::rsqrt(1 - at::pow(beta2, step)).to(arena_.type());
    const at::Tensor kept_second = guarded.complement(1 - beta2);
    for (const UpdatePiece& piece : group.pieces) {
      const at::Tensor gradient = guarded.gradient(piece.gradient), &offset = piece.states[0],
                       &second = piece.states[1];
      second.mul_(kept_second).addcmul_(gradient, gradient, 1 - beta2);
      at::Tensor update = gradient.div(second.sqrt().mul_(correction).add_(spec_.eps));
      if (group.of.weight_decay != 0) update.add_(piece.value, group.of.weight_decay);
      piece.value.sub_(offset.mul(of_offset)).add_(update.mul(of_update));
      offset.add_(update.mul_(into_offset)).mul_(kept_offset);
    }
  }

  ScheduleFreeAdamWSpec spec_;
  const device::Arena& arena_;
  at::Tensor offset_, second_, step_, highest_lr_;
  std::map<double, at::Tensor> weight_sums_;  // sums over the steps since an update, 0-dim double
  std::vector<Group> groups_;
  std::map<std::string, double> since_;
  std::vector<at::Tensor> trained_;  // values while the arena has the average, in the order of groups and pieces
};

const config::Registered<ScheduleFreeAdamW, ScheduleFreeAdamWSpec> registered_schedule_free_adamw{
    catalog(), "schedule_free_adamw", "AdamW whose average of weights stands in for a falling rate"};

}  // namespace
}  // namespace gputrain::optim
