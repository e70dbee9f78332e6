#include "gputrain/optim/schedule.hpp"

namespace gputrain::optim {

double nobody_has_this(int64_t step);

namespace {

class Line final : public Schedule {
 public:
  Line(const config::NoOptions&, const ScheduleContext&) {}
#ifdef UNRESOLVED
  double lr(int64_t step) const override { return nobody_has_this(step); }
#else
  double lr(int64_t) const override { return 1; }
#endif
  std::string describe() const override { return "a line"; }
};

#ifdef TAKEN_NAME
const config::Registered<Line, config::NoOptions> registered_line{schedules(), "cosine", "a name that is taken"};
#elif !defined(NOTHING)
const config::Registered<Line, config::NoOptions> registered_line{schedules(), "line", "a line"};
#endif

}  // namespace
}  // namespace gputrain::optim
