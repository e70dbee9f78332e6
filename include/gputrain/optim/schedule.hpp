// The learning rate as a pure function of the step. One curve per file in src/optim/schedules.
//
// Steps count updates already made, so the first update has step 0. During warm-up the rate rises in equal parts: step
// k of `warmup` gets (k + 1) / (warmup + 1) of the peak, as in nanoGPT, and step `warmup` the peak. Curves are those of
// Hugging Face transformers (`get_*_schedule_with_warmup`) without the idle first update that theirs begin a warm-up
// with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "gputrain/config/catalog.hpp"
#include "gputrain/config/value_types.hpp"

namespace gputrain::optim {

/// What a curve spans, and how it reads lengths of the job.
struct Horizon {
  double peak_lr = 0;
  int64_t total_steps = 0;  // updates from the start of training to its end; INT64_MAX: not known
  /// Steps, perhaps 0, of a length that the job gives under `key`: to_steps(spec.warmup, "warmup"). Throws Error(usage)
  /// that names the key where the length makes no sense in this job.
  std::function<int64_t(const config::Length& length, const std::string& key)> to_steps;
};

class Schedule {
 public:
  virtual ~Schedule();

  /// The rate of the update after `step` updates; defined for every step >= 0, also past the end.
  virtual double lr(int64_t step) const = 0;

  virtual std::string describe() const = 0;  // "warmup 700 then cosine to 0"
};

using ScheduleCatalog = config::Catalog<Schedule, const Horizon&>;
ScheduleCatalog& schedules();

}  // namespace gputrain::optim
