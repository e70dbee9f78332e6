// Cosines that restart at the peak: Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR
// 2017. With num_cycles as transformers' get_cosine_with_hard_restarts_schedule_with_warmup, with first_cycle as
// torch.optim.lr_scheduler.CosineAnnealingWarmRestarts.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "../warmup.hpp"

namespace gputrain::optim {
namespace {

struct CosineRestartsSpec : DecaySpec {
  int64_t num_cycles = 1;
  std::optional<config::Length> first_cycle;
  int64_t t_mult = 1;

  static void describe(config::Description<CosineRestartsSpec>& d) {
    describe_decay(d);
    d.key("num_cycles", &CosineRestartsSpec::num_cycles, "equal cycles between the warm-up and the end of training")
        .at_least(1);
    d.key("first_cycle", &CosineRestartsSpec::first_cycle,
          "length of the first cycle, instead of num_cycles; training may end within a cycle")
        .above(0)
        .aliases({"T_0", "t_0", "first_cycle_steps"});
    d.key("t_mult", &CosineRestartsSpec::t_mult, "each cycle is this many times as long as the one before")
        .at_least(1)
        .aliases({"T_mult", "cycle_mult"});
    d.check([](const CosineRestartsSpec& spec, config::SpecIssues& issues) {
      if (spec.first_cycle && spec.num_cycles > 1)
        issues.add("num_cycles", "num_cycles and first_cycle both set the length of a cycle", "remove one of them");
      if (!spec.first_cycle && spec.t_mult > 1)
        issues.add("t_mult", "t_mult needs the length of a first cycle", "set first_cycle, for instance 10ep");
    });
  }
};

class CosineRestartsSchedule final : public Schedule {
 public:
  CosineRestartsSchedule(const CosineRestartsSpec& spec, const ScheduleContext& context)
      : warmup_(spec, context),
        min_lr_(spec.min_lr),
        total_(context.total_steps),
        num_cycles_(spec.num_cycles),
        t_mult_(spec.t_mult) {
    check_floor(min_lr_, warmup_.peak());
    if (spec.first_cycle) {
      first_cycle_ = std::max<int64_t>(1, context.to_steps(*spec.first_cycle, "first_cycle"));
    } else {
      check_has_end(context, "cosine_restarts");
    }
  }

  double lr(int64_t step) const override {
    if (step < warmup_.steps()) return warmup_.lr(step);
    const int64_t later = step - warmup_.steps();
    const double part = first_cycle_ > 0 ? part_of_growing_cycle(later) : part_of_equal_cycle(later);
    return min_lr_ + (warmup_.peak() - min_lr_) * 0.5 * (1 + std::cos(std::numbers::pi * part));
  }

  std::string describe() const override {
    const std::string cycles = first_cycle_ == 0 ? fmt::format("{} equal", num_cycles_)
                               : t_mult_ == 1    ? fmt::format("every {}", first_cycle_)
                                                 : fmt::format("first {}, each times {}", first_cycle_, t_mult_);
    return warmup_.then(fmt::format("cosine restarts to {}, cycles: {}", min_lr_, cycles));
  }

 private:
  double part_of_equal_cycle(int64_t step) const {
    const int64_t length = std::max<int64_t>(total_ - warmup_.steps(), 1);
    if (step >= length) return 1;
    // Whole numbers, so that a restart is at the step where it should be.
    return static_cast<double>(step * num_cycles_ % length) / static_cast<double>(length);
  }

  double part_of_growing_cycle(int64_t step) const {
    int64_t length = first_cycle_;
    if (t_mult_ == 1) step %= length;
    while (step >= length) {
      step -= length;
      if (length > INT64_MAX / t_mult_) break;
      length *= t_mult_;
    }
    return std::min(static_cast<double>(step) / static_cast<double>(length), 1.0);
  }

  Warmup warmup_;
  double min_lr_;
  int64_t total_, num_cycles_, t_mult_, first_cycle_ = 0;
};

const config::Registered<CosineRestartsSchedule, CosineRestartsSpec> registered_cosine_restarts{
    schedules(), "cosine_restarts", "cosines to min_lr that start again at the peak"};

}  // namespace
}  // namespace gputrain::optim
