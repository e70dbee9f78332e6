// AdamW: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019; torch.optim.AdamW's arithmetic.
// Weights and averages that are kept in bf16 are computed in fp32 and rounded stochastically.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "../guarded_step.hpp"
#include "../state_parts.hpp"
#include "gputrain/core/error.hpp"
#include "shared_keys.hpp"

namespace gputrain::optim {
namespace {

struct AdamWSpec {
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
  std::string averages = "fp32";

  static void describe(config::Description<AdamWSpec>& d) {
    d.summary("Adam with decoupled weight decay");
    describe_betas(d);
    describe_eps(d).at_least(0);
    describe_weight_decay(d);
    d.key("averages", &AdamWSpec::averages,
          "type of the running averages; bf16 halves their memory, and they are rounded stochastically")
        .choices({"fp32", "bf16"})
        .aliases({"state_dtype", "exp_avg_dtype", "optim_state_dtype", "bf16_optimizer_states"});
  }
};

class AdamW final : public Optimizer {
 public:
  static Abilities abilities(const AdamWSpec& spec) {
    return {.narrow_masters = true, .narrow_state = spec.averages == "bf16", .in_parts = true};
  }

  AdamW(const AdamWSpec& spec, const device::Arena& arena)
      : spec_(spec),
        arena_(arena),
        averages_(arena, {type_of_averages(), type_of_averages()}),
        step_(at::zeros({}, arena.options().dtype(at::kFloat))),
        values_(arena.kept_values()),
        gradients_(arena.kept_gradients()) {
    GPUTRAIN_ASSERT(!has_narrow_averages() || arena.type() != at::kDouble, "averages in bf16 of weights in fp64");
    build_groups();
  }

  void step(const StepScalars& scalars) override {
    step_.add_(1);
    const ops::AdamWRule rule{.beta1 = spec_.betas[0], .beta2 = spec_.betas[1], .eps = spec_.eps};
    const at::Tensor copy = copy_to_write(arena_);
    bool wrote_copy = copy.defined();
    averages_.each([&](size_t part, const std::vector<at::Tensor>& averages) {
      const bool is_done = parts_[part].on_gpu.adamw({values_, gradients_, averages[0], averages[1], step_, copy},
                                                     {scalars.lr, scalars.found_inf, scalars.divisor}, rule);
      if (!is_done) update_by_aten(parts_[part].groups, averages, scalars);
      wrote_copy = wrote_copy && is_done;
    });
    note_update(arena_, wrote_copy);
    // The fused kernels skip the update themselves. Take the count back here, without reading the device.
    if (scalars.found_inf) step_.sub_(scalars.found_inf->squeeze(0));
  }

  State state() override {
    State state{.flat = {{"exp_avg", averages_.whole()[0]}, {"exp_avg_sq", averages_.whole()[1]}},
                .scalars = {{"step", step_}}};
    for (const auto& [name, count] : since_)
      state.scalars.emplace_back(kSincePrefix + name, at::full_like(step_, count));
    return state;
  }

  void count_since(const std::map<std::string, double>& since) override {
    if (since == since_) return;
    since_ = since;
    earlier_.push_back(std::move(parts_));
    build_groups();
  }
  double updates() const override { return step_.item<double>(); }
  int64_t bytes_on_host() const override { return averages_.bytes_on_host(); }

  std::string describe() const override {
    return fmt::format("adamw betas {} {} decay {}{}", spec_.betas[0], spec_.betas[1], spec_.weight_decay,
                       has_narrow_averages() ? " averages bf16" : "");
  }

 private:
  struct Part {
    ops::FlatUpdate on_gpu;
    std::vector<UpdateGroup> groups;
  };

  bool has_narrow_averages() const { return spec_.averages == "bf16"; }
  bool rounds() const { return has_narrow_averages() || arena_.has_narrow_values(); }

  at::ScalarType type_of_averages() const { return has_narrow_averages() ? at::kBFloat16 : arena_.state_type(); }

  void build_groups() {
    const auto groups =
        update_groups(arena_, spec_.weight_decay, since_, rounds() ? Ranges::of_tensors : Ranges::joined);
    parts_.clear();
    for (std::vector<UpdateGroup>& part : averages_.split(groups))
      parts_.push_back({.on_gpu = ops::FlatUpdate(flat_stretches(part)), .groups = std::move(part)});
  }

  void update_by_aten(const std::vector<UpdateGroup>& groups, const std::vector<at::Tensor>& averages,
                      const StepScalars& scalars) const {
    for (const UpdateGroup& group : groups) {
      if (!rounds()) {
        update(group,
               {group.values(arena_), group.gradients(arena_), group.states(averages[0]), group.states(averages[1])},
               scalars);
        continue;
      }
      for (const UpdatePiece& piece : pieces_of(group, arena_, averages)) update_rounded(group, piece, scalars);
    }
  }

  struct Operands {
    std::vector<at::Tensor> values, gradients, first, second;
  };
  void update(const UpdateGroup& group, const Operands& of, const StepScalars& scalars) const {
    const at::Tensor step = group.since == 0 ? step_ : step_.sub(group.since);
    const std::vector<at::Tensor> steps(of.values.size(), step);
    at::_fused_adamw_(of.values, of.gradients, of.first, of.second, {}, steps, group.rate(scalars.lr), spec_.betas[0],
                      spec_.betas[1], group.weight_decay, spec_.eps, /*amsgrad=*/false, /*maximize=*/false,
                      scalars.divisor, scalars.found_inf);
  }

  /// Updates fp32 copies of what has 16 bits, and rounds them back. A skipped update changes no bit.
  void update_rounded(const UpdateGroup& group, const UpdatePiece& piece, const StepScalars& scalars) const {
    const at::Tensor &value = piece.value, &first = piece.states[0], &second = piece.states[1];
    const Operands wide{.values = {value.to(at::kFloat)},
                        .gradients = {piece.gradient.to(at::kFloat)},
                        .first = {first.to(at::kFloat)},
                        .second = {second.to(at::kFloat)}};
    update(group, wide, scalars);
    const auto words = [&](ops::RoundingUse use) {
      return ops::rounding_words(piece.rounded, value.numel(), step_, ops::WordOrder::neighbours, use);
    };
    if (arena_.has_narrow_values())
      value.copy_(ops::rounded_stochastically(wide.values[0], words(ops::RoundingUse::value)));
    if (!has_narrow_averages()) return;
    const at::Tensor bits = words(ops::RoundingUse::averages);
    first.copy_(ops::rounded_stochastically(wide.first[0], bits));
    second.copy_(ops::rounded_stochastically(wide.second[0], bits.bitwise_right_shift(16)));
  }

  AdamWSpec spec_;
  const device::Arena& arena_;
  StateParts averages_;
  at::Tensor step_, values_, gradients_;
  std::vector<Part> parts_;
  std::vector<std::vector<Part>> earlier_;  // a recorded step may read their tables
  std::map<std::string, double> since_;
};

const config::Registered<AdamW, AdamWSpec> registered_adamw{catalog(), "adamw", "Adam with decoupled weight decay"};

}  // namespace
}  // namespace gputrain::optim
