// The learning rate as a pure function of the step. One curve per file in src/optim/schedules.
//
// Steps count completed updates, so the first update has step 0. The warm-up is linear: step k of `warmup` gets (k + 1)
// / (warmup + 1) of the peak, as in nanoGPT, and step `warmup` gets the peak. Curves are those of Hugging Face
// transformers (`get_*_schedule_with_warmup`), but without the first update at rate 0.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gputrain/config/catalog.hpp"
#include "gputrain/config/value_types.hpp"
#include "gputrain/optim/feedback.hpp"

namespace gputrain::optim {

/// The range of a curve, and the conversion of lengths to steps: of a training that has the present global batch from
/// its start. After a change, the trainer reads the curve at the point with the same share of training (train::Plan).
struct ScheduleContext {
  double peak_lr = 0;
  int64_t total_steps = 0;  // updates in the whole training; INT64_MAX: unknown
  /// Converts a length that the job sets under `key` to steps, perhaps 0: to_steps(spec.warmup, "warmup"). Throws
  /// Error(usage) that names the key if the length makes no sense in this job.
  std::function<int64_t(const config::Length& length, const std::string& key)> to_steps;
};

struct CurveAbilities {
  bool follows_evaluations = false;  // it changes Feedback::factor, by which the rate is multiplied
};

class Schedule {
 public:
  virtual ~Schedule();

  /// Returns the rate of the update after `step` updates. Defined for every step >= 0, also past the end.
  virtual double lr(int64_t step) const = 0;

  virtual void follow(const Evaluated&, Feedback&) const {}

  virtual std::string describe() const = 0;  // "warmup 700 then cosine to 0"
};

struct LrSchedulerSpec;  // spec.hpp

/// Makes the curve of a job.
std::unique_ptr<Schedule> make_schedule(const LrSchedulerSpec& spec, const ScheduleContext& context);

/// Returns the rate at a point between two steps, on the straight line between their rates.
double lr_at(const Schedule& schedule, double step);

using ScheduleCatalog = config::CatalogOfAbilities<CurveAbilities, Schedule, const ScheduleContext&>;
ScheduleCatalog& schedules();

}  // namespace gputrain::optim
