// Half a cosine: Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017.
#include <cmath>
#include <numbers>

#include "../warmup.hpp"

namespace gputrain::optim {
namespace {

class CosineSchedule final : public DecayingSchedule {
 public:
  CosineSchedule(const WholeDecaySpec& spec, const ScheduleContext& context)
      : DecayingSchedule(spec, context, "cosine") {}

 protected:
  double share_left(double part) const override { return 0.5 * (1 + std::cos(std::numbers::pi * part)); }
};

const config::Registered<CosineSchedule, WholeDecaySpec> registered_cosine{schedules(), "cosine",
                                                                           "half a cosine from the peak to min_lr"};

}  // namespace
}  // namespace gputrain::optim
