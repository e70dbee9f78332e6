#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::train {
namespace {

constexpr size_t kSamplesShown = 8;

std::vector<int64_t> shown(const data::StepSamples& step) {
  return {step.samples.begin(),
          step.samples.begin() + static_cast<int64_t>(std::min(step.samples.size(), kSamplesShown))};
}

std::string text_of(const data::StepSamples& step) {
  std::string text = fmt::format("epoch {}, samples {}", step.epoch, fmt::join(shown(step), ", "));
  if (step.samples.size() > kSamplesShown) text += fmt::format(" and {} more", step.samples.size() - kSamplesShown);
  return text;
}

}  // namespace

Stop NonFiniteGuard::after_step(Progress& progress, const StepResult& result, bool requested) {
  if (!flags_.defined()) flags_ = at::zeros({parts_.look_every}, result.found_inf.options());
  const bool acts = will_act(progress, requested);
  flags_.narrow(0, steps_++, 1).copy_(result.found_inf);
  return acts ? look(progress) : Stop::none;
}

bool NonFiniteGuard::will_act(const Progress& progress, bool requested) const {
  const bool others_act =
      requested || parts_.plan.eval.at_step(progress.step) || parts_.plan.save.at_step(progress.step);
  return others_act || steps_ + 1 == parts_.look_every;
}

Stop NonFiniteGuard::after_training(Progress& progress, bool) { return look(progress); }

Stop NonFiniteGuard::look(Progress& progress) {
  if (steps_ == 0) return Stop::none;
  const at::Tensor flags = flags_.narrow(0, 0, steps_).to(at::kCPU);
  const int64_t first = progress.step - steps_ + 1;
  const int64_t count = std::exchange(steps_, 0);
  if (parts_.scaler != nullptr) return look_at_scale(progress.step);
  for (int64_t i = 0; i < count; ++i) {
    if (flags.const_data_ptr<float>()[i] == 0) {
      progress.skipped_in_a_row = 0;
      continue;
    }
    ++progress.nonfinite_steps;
    if (const Stop stop = act(progress, first + i); stop != Stop::none) return stop;
  }
  return Stop::none;
}

std::string NonFiniteGuard::hint(const std::string& other_ways) const {
  const std::string sent = parts_.sends_fp16 ? "parallel.compress: bf16, as fp16 holds nothing above 65,504; " : "";
  return sent + "lower optimizer.lr, set train.max_grad_norm: 1.0, or " + other_ways;
}

Stop NonFiniteGuard::act(Progress& progress, int64_t step) {
  record(step, "the loss or a gradient is not finite");
  const auto& spec = parts_.spec;
  if (spec.nonfinite == "rollback") return Stop::diverged;
  if (spec.nonfinite == "stop") {
    throw Error(ExitCode::refused, {.what = "training diverged: " + finding_ + "; that update was not made",
                                    .hint = hint("train.nonfinite: skip or rollback to go on")});
  }
  if (++progress.skipped_in_a_row > spec.max_skips_in_a_row) {
    throw Error(ExitCode::refused, {.what = "training diverged: " + finding_ + ", after " +
                                            std::to_string(spec.max_skips_in_a_row) + " skipped updates in a row",
                                    .hint = hint("train.nonfinite: rollback; train.max_skips_in_a_row allows more")});
  }
  log::warning("update skipped: " + finding_);
  return Stop::none;
}

Stop NonFiniteGuard::look_at_scale(int64_t step) {
  if (!parts_.scaler->has_collapsed()) return Stop::none;
  record(step, "gradients are not finite at any loss scale");
  if (parts_.spec.nonfinite == "rollback") return Stop::diverged;
  throw Error(ExitCode::refused,
              {.what = "training diverged: " + finding_, .hint = "lower optimizer.lr, or use precision: bf16"});
}

void NonFiniteGuard::record(int64_t step, const std::string& what) {
  const data::StepSamples of_step = data::samples_of_step(parts_.order, step - 1);
  finding_ = what + " at step " + std::to_string(step) + " (" + text_of(of_step) + ")";
  parts_.ledger.append("nonfinite", {{"step", step},
                                     {"epoch", of_step.epoch},
                                     {"what", what},
                                     {"action", parts_.spec.nonfinite},
                                     {"samples", shown(of_step)},
                                     {"sample_count", of_step.samples.size()}});
}

}  // namespace gputrain::train
