#include "../warmup.hpp"

namespace gputrain::optim {
namespace {

class LinearSchedule final : public DecayingSchedule {
 public:
  LinearSchedule(const WholeDecaySpec& spec, const ScheduleContext& context)
      : DecayingSchedule(spec, context, "linear") {}

 protected:
  double share_left(double part) const override { return 1 - part; }
};

const config::Registered<LinearSchedule, WholeDecaySpec> registered_linear{schedules(), "linear",
                                                                           "a straight line from the peak to min_lr"};

}  // namespace
}  // namespace gputrain::optim
