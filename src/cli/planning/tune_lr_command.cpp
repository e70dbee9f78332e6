// Command `gputrain tune lr`: trains for some steps at rising learning rates, and suggests a rate to start with.
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/estimate/memory.hpp"
#include "gputrain/inspect/lr_range_test.hpp"
#include "gputrain/job/job_environment.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/setup/compatibility.hpp"
#include "gputrain/setup/references.hpp"
#include "gputrain/setup/training_loop.hpp"

namespace gputrain::app {
namespace {

class RisingLr final : public optim::Schedule {
 public:
  /// Sets the range. `scale`: factor of the optimizer at optimizer.lr 1, see lr_base_batch_size.
  RisingLr(const LrRange& range, double scale) : range_(range), scale_(scale) {}
  double lr(int64_t step) const override { return scale_ * range_.at(step); }
  std::string describe() const override { return "rising"; }

 private:
  LrRange range_;
  double scale_;
};

class LossHook final : public train::Hook {
 public:
  LossHook(const LrRange& range, monitor::Console& console) : range_(range), console_(console) {}

  train::Stop after_step(train::Progress& progress, const train::StepResult& result, bool) override {
    const double loss = result.loss_sum.item<double>() / train::divisor_of_loss(result.weight);
    const double lr = range_.at(progress.step - 1);
    diverged_ = divergence_.has_come(loss);
    if (std::isfinite(loss)) points_.push_back({.lr = lr, .loss = loss});
    console_.status(
        fmt::format("step {}/{}  lr {:.2g}  loss {}", progress.step, range_.steps, lr, monitor::significant(loss)));
    return diverged_ ? train::Stop::max_time : train::Stop::none;
  }
  bool will_act(const train::Progress&, bool) const override { return true; }

  const std::vector<LrPoint>& points() const noexcept { return points_; }
  bool has_diverged() const noexcept { return diverged_; }

 private:
  LrRange range_;
  monitor::Console& console_;
  Divergence divergence_;
  std::vector<LrPoint> points_;
  bool diverged_ = false;
};

nlohmann::json json_of(const std::vector<LrPoint>& points, const LrSuggestion& found, bool diverged) {
  auto list = nlohmann::json::array();
  for (size_t i = 0; i < points.size(); ++i)
    list.push_back({{"lr", points[i].lr}, {"loss", points[i].loss}, {"smoothed", found.smoothed[i]}});
  nlohmann::json json{{"schema", 1},
                      {"points", std::move(list)},
                      {"falls_fastest", points[found.fastest].lr},
                      {"lowest", points[found.lowest].lr},
                      {"diverged", diverged},
                      {"suggested", nullptr}};
  if (found.falls) json["suggested"] = points[found.suggested].lr;
  return json;
}

void refuse_what_cannot_be_tuned(const TuneLrRequest& request, const Job& job) {
  if (request.min >= request.max)
    throw Error(ExitCode::usage, {.what = fmt::format("--min {:g} is not below --max {:g}", request.min, request.max),
                                  .hint = "--min 1e-6 --max 1"});
  for (const optim::GroupSpec& group : job.spec().optimizer.groups)
    if (group.lr && !group.lr->ends_with('x'))
      throw job.loaded.error("optimizer.groups",
                             "a group has the rate " + *group.lr + ", which would rise with the others",
                             "a factor of optimizer.lr, such as lr: 10x");
  if (job.spec().train.searches_micro_batch())
    throw job.loaded.error("train.micro_batch_size", "auto is found by a run, not here",
                           "--set train.micro_batch_size=8");
}

int tune_lr(const TuneLrRequest& request, const Job& job) {
  TrainingSetup setup(job);
  if (!setup.context.groups.alone())
    throw Error(ExitCode::usage, {.what = "tune lr trains on one rank, but a launcher has started several",
                                  .hint = "start it without a launcher: the global batch decides, not the ranks"});
  take_references(job, setup, {.file = RunFolder{job.output_dir}.references(), .split = "train", .keeps = false});
  const LrRange range{.min = request.min, .max = request.max, .steps = request.steps};
  const auto& optimizer = job.spec().optimizer;
  const double scale = optimizer.peak_lr(setup.plan.batch.global_batch) / optimizer.lr;
  setup.plan.total_steps = range.steps;
  setup.optimizer_stack.schedule = std::make_unique<RisingLr>(range, scale);
  monitor::Console console(monitor::Console::detect(!request.json));
  console.show("data", setup.datasets.train->describe());
  console.show("test", fmt::format("{} of {}, optimizer.lr from {:g} to {:g}  {}", counted(range.steps, "step"),
                                   counted(setup.plan.batch.global_batch, "sample"), range.min, range.max,
                                   setup.optimizer_stack.optimizer->describe()));
  LossHook hook(range, console);
  train::Progress progress;
  TrainingLoop(job.spec(), setup, {}, [] {}).run(progress, {&hook});
  console.clear_status();
  const auto& points = hook.points();
  if (points.size() < 10)
    throw Error(ExitCode::refused, {.what = fmt::format("training diverged after {}", counted(progress.step, "step")),
                                    .hint = fmt::format("more --steps, or a lower --max than {:g}", range.max)});
  const LrSuggestion found = suggest_lr(points);
  if (request.json) {
    std::printf("%s\n", json_of(points, found, hook.has_diverged()).dump(2).c_str());
  } else {
    std::printf("\n%s\n", lr_table(points, found, monitor::terminal_width()).c_str());
  }
  if (!request.output.empty()) {
    write_file_atomically(
        request.output,
        lr_picture(points, found,
                   job.name + ": loss over the learning rate, " + setup.optimizer_stack.optimizer->describe()),
        ExitCode::environment);
    console.show("picture", request.output);
  }
  if (!found.falls)
    throw Error(ExitCode::refused, {.what = "the loss falls at no rate more than its noise",
                                    .hint = "a higher --max, more --steps, or a larger train.global_batch_size"});
  console.show("lr", fmt::format("--set optimizer.lr={:.2g}  the loss falls fastest at {:.2g}, is lowest at {:.2g}{}",
                                 points[found.suggested].lr, points[found.fastest].lr, points[found.lowest].lr,
                                 hook.has_diverged() ? fmt::format(", diverges at {:.2g}", range.at(progress.step - 1))
                                                     : std::string()));
  if (!hook.has_diverged() && found.lowest + points.size() / 20 >= points.size())
    console.show("", fmt::format("the loss still falls at --max {:g}: try a higher one", range.max));
  console.show("", "with a warm-up, rates up to that of the lowest loss and above may be better: `gputrain sweep`");
  return 0;
}

}  // namespace

int tune_lr_command(const TuneLrRequest& request) {
  const Job job = load_job(request.job);
  check_compatibility(job);
  refuse_what_cannot_be_tuned(request, job);
  take_environment(job.spec().env);
  try {
    return tune_lr(request, job);
  } catch (const std::exception& failure) {
    if (const auto shortage = out_of_memory_error(failure, job, nullptr, "in the range test")) throw Error(*shortage);
    throw;
  }
}

}  // namespace gputrain::app
