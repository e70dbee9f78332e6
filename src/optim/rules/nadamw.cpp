// NAdam with decoupled weight decay: Dozat, "Incorporating Nesterov momentum into Adam", ICLR workshop 2016;
// torch.optim.NAdam's arithmetic with decoupled_weight_decay=True.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "../guarded_step.hpp"

namespace gputrain::optim {
namespace {

struct NAdamWSpec {
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
  double momentum_decay = 4e-3;
  double weight_decay = 0.01;

  static void describe(config::Description<NAdamWSpec>& d) {
    d.summary("AdamW with Nesterov momentum");
    d.key("betas", &NAdamWSpec::betas, "decay rates of the running averages of the gradient and of its square")
        .elements(2)
        .at_least(0)
        .below(1)
        .change(config::Change::needs_accept)
        .aliases({"adam_betas"});
    d.key("eps", &NAdamWSpec::eps, "added to the root of the second average")
        .above(0)
        .change(config::Change::needs_accept)
        .aliases({"adam_epsilon"});
    d.key("momentum_decay", &NAdamWSpec::momentum_decay, "how fast the momentum rises to its final value")
        .at_least(0)
        .change(config::Change::needs_accept);
    d.key("weight_decay", &NAdamWSpec::weight_decay,
          "share of a weight, times the learning rate, subtracted at each step")
        .at_least(0)
        .change(config::Change::needs_accept)
        .aliases({"wd"});
  }
};

class NAdamW final : public Optimizer {
 public:
  NAdamW(const NAdamWSpec& spec, const device::Arena& arena)
      : spec_(spec),
        arena_(arena),
        first_(arena.make_state()),
        second_(arena.make_state()),
        step_(at::zeros({}, arena.options().dtype(at::kFloat))),
        product_(at::ones({}, arena.options().dtype(at::kDouble))) {
    build_groups();
  }

  void step(const StepScalars& scalars) override {
    const GuardedStep guarded(scalars, arena_.kept_values());
    const CountedStep counted(step_, scalars);
    for (const Group& group : groups_) update(group, guarded);
    note_update(arena_, /*wrote_copy=*/false);
  }

  State state() override {
    State state{.flat = {{"exp_avg", first_}, {"exp_avg_sq", second_}},
                .scalars = {{"step", step_}, {"mu_product", product_}}};
    add_counts(state, since_, step_);
    return state;
  }

  void count_since(const std::map<std::string, double>& since) override {
    if (since.empty() && since_.empty()) return;
    since_ = since;
    build_groups();
  }
  double updates() const override { return step_.item<double>(); }

  std::string describe() const override {
    return fmt::format("nadamw betas {} {} decay {}", spec_.betas[0], spec_.betas[1], spec_.weight_decay);
  }

 private:
  struct Group {
    UpdateGroup of;
    at::Tensor product;  // product of the momenta of all updates so far, 0-dim
    std::vector<UpdatePiece> pieces;
    bool ends_count = false;  // the last group with this product, which moves it on
  };

  void build_groups() {
    groups_.clear();
    std::map<double, at::Tensor> products{{0, product_}};
    for (const UpdateGroup& group : update_groups(arena_, spec_.weight_decay, since_)) {
      at::Tensor& product = products[group.since];
      if (!product.defined()) product = at::ones_like(product_).mul_(product_after(updates() - group.since));
      groups_.push_back({.of = group, .product = product, .pieces = pieces_of(group, arena_, {first_, second_})});
    }
    std::map<double, Group*> last;
    for (Group& group : groups_) last[group.of.since] = &group;
    for (const auto& [since, group] : last) group->ends_count = true;
  }

  double product_after(double updates) const {
    double product = 1;
    for (double step = 1; step <= updates; ++step)
      product *= spec_.betas[0] * (1 - 0.5 * std::pow(0.96, step * spec_.momentum_decay));
    return product;
  }

  at::Tensor momentum_at(const at::Tensor& step) const {
    return (1 - at::pow(0.96, step * spec_.momentum_decay) * 0.5) * spec_.betas[0];
  }

  void update(const Group& group, const GuardedStep& guarded) const {
    const at::Tensor step = step_.to(at::kDouble) - group.of.since;
    const at::Tensor now = momentum_at(step), next = momentum_at(step + 1), product = group.product * now;
    const at::Tensor lr = guarded.lr() * group.of.lr_factor;
    const at::Tensor of_gradient = guarded.guarded(lr * (1 - now) / (1 - product));
    const at::Tensor of_average = guarded.guarded(lr * next / (1 - product * next));
    const at::Tensor correction = at::rsqrt(1 - at::pow(spec_.betas[1], step)).to(arena_.type());
    const at::Tensor decay = guarded.decay(group.of.lr_factor, group.of.weight_decay);
    const at::Tensor in_first = guarded.share(1 - spec_.betas[0]), kept = guarded.complement(1 - spec_.betas[1]);
    for (const UpdatePiece& piece : group.pieces) {
      const at::Tensor gradient = guarded.gradient(piece.gradient), &first = piece.states[0], &second = piece.states[1];
      if (group.of.weight_decay != 0) piece.value.mul_(decay);
      first.lerp_(gradient, in_first);
      second.mul_(kept).addcmul_(gradient, gradient, 1 - spec_.betas[1]);
      const at::Tensor root = second.sqrt().mul_(correction).add_(spec_.eps);
      piece.value.sub_(gradient.mul(of_gradient).add_(first.mul(of_average)).div_(root));
    }
    if (group.ends_count) group.product.copy_(guarded.either(product, group.product));
  }

  NAdamWSpec spec_;
  const device::Arena& arena_;
  at::Tensor first_, second_, step_, product_;
  std::vector<Group> groups_;
  std::map<std::string, double> since_;
};

const config::Registered<NAdamW, NAdamWSpec> registered_nadamw{catalog(), "nadamw", "AdamW with Nesterov momentum"};

}  // namespace
}  // namespace gputrain::optim
