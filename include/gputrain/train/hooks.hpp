// The hooks of every run, in the order in which they run: non-finite guard, log, evaluation, checkpoint.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/data/sample_usage.hpp"
#include "gputrain/monitor/ledger.hpp"
#include "gputrain/monitor/recorder.hpp"
#include "gputrain/optim/grad_scaler.hpp"
#include "gputrain/train/evaluator.hpp"
#include "gputrain/train/hook.hpp"
#include "gputrain/train/plan.hpp"
#include "gputrain/train/save_pace.hpp"
#include "gputrain/train/time_left.hpp"

namespace gputrain::train {

/// The recorder to which hooks report, and the plan.
struct Reporting {
  monitor::Recorder& recorder;
  const Plan& plan;
};

/// Number of steps between NonFiniteGuard's reads of a GPU's flags.
inline constexpr int64_t kDeviceLookEvery = 50;

/// Finds losses and gradients that are not finite, names step and samples, and acts as `train.nonfinite` says. The
/// device skips such an update, so a late look loses nothing: on a GPU it looks every `look_every` steps, and before
/// another hook reads the device. With loss scaling it only reports a scale that has collapsed, not skipped updates.
class NonFiniteGuard final : public Hook {
 public:
  struct Parts {
    const TrainSpec& spec;
    int64_t look_every = 1;
    const optim::GradScaler* scaler = nullptr;  // null without loss scaling
    const Plan& plan;
    data::OrderFacts order;
    monitor::Ledger& ledger;
    std::function<bool()> others_due = {};  // whether a clock or a request makes another hook due
    bool sends_fp16 = false;                // ranks exchange gradients as fp16
  };
  explicit NonFiniteGuard(Parts parts) : parts_(std::move(parts)) {}
  /// Throws Error(refused) if training must not continue. Returns Stop::diverged to roll back first.
  Stop after_step(Progress& progress, const StepResult& result, bool requested) override;
  Stop after_training(Progress& progress, bool stopped) override;
  bool will_act(const Progress& progress, bool requested) const override;
  bool is_due() const override { return parts_.others_due && parts_.others_due(); }

  /// Returns the latest finding: "the loss or a gradient is not finite at step 12 (epoch 0, samples 5, 17, 3)".
  const std::string& finding() const noexcept { return finding_; }

 private:
  Stop look(Progress& progress);
  Stop act(Progress& progress, int64_t step);
  Stop look_at_scale(int64_t step);
  void record(int64_t step, const std::string& what);
  std::string hint(const std::string& other_ways) const;

  Parts parts_;
  at::Tensor flags_;   // [look_every] StepResult::found_inf of the steps since the last look
  int64_t steps_ = 0;  // number of these steps
  std::string finding_;
};

/// The numbers that give a share of the peak rate; 0: unknown.
struct ModelFlops {
  double per_sample = 0;       // floating-point operations, see models::Model::flops_per_sample
  double peak_per_second = 0;  // of all ranks together

  /// Returns the share of the peak that the model's operations reach at this rate ("model FLOPs utilization": Chowdhery
  /// et al., "PaLM: scaling language modeling with pathways", 2022); empty: unknown.
  std::optional<double> utilization(double samples_per_second) const {
    if (per_sample <= 0 || peak_per_second <= 0) return std::nullopt;
    return per_sample * samples_per_second / peak_per_second;
  }
};

/// Writes one console line and one metrics line per log interval, and updates the status line between them.
class LogHook final : public Hook {
 public:
  LogHook(Reporting reporting, comm::ProcessGroups& groups, at::Device device)
      : reporting_(reporting), groups_(groups), device_(device), left_(reporting.plan) {}
  void before_training(Progress& progress) override { left_.begin(progress); }
  void before_step(const Progress& progress) override;
  Stop after_step(Progress& progress, const StepResult& result, bool requested) override;
  Stop after_training(Progress& progress, bool stopped) override;
  bool will_act(const Progress& progress, bool requested) const override;
  bool is_due() const override;
  nlohmann::json state() override;
  void restore(const nlohmann::json& state) override;

  /// Call after restore() if training continues with the weights of `restored` at the later step of `reached`: accounts
  /// for the time of the steps between them.
  void pass_over(const Progress& restored, const Progress& reached);

  /// Sets a function that returns more metrics for the record of each line.
  void set_more_metrics(std::function<monitor::Metrics()> more) { more_metrics_ = std::move(more); }

  /// Makes lines say how much of the ranks' peak rate the model uses.
  void set_model_flops(const ModelFlops& flops) { flops_ = flops; }

  /// Makes the redrawn line tell what the function returns: what the run has cost so far.
  void set_cost(std::function<std::string()> cost) { cost_ = std::move(cost); }

  /// Returns the time that the run still takes from `progress` on; 0: no step of this attempt has been measured.
  double seconds_left(const Progress& progress) const { return left_.seconds(progress); }
  double first_step_seconds() const noexcept { return first_step_seconds_; }
  /// Return averages over this attempt's steps except the first.
  double samples_per_second() const noexcept;
  double tokens_per_second() const noexcept;

 private:
  struct Interval {       // since the last log line
    at::Tensor loss_sum;  // double scalar on the device, over this rank's targets
    double weight = 0;    // weight of the targets of all ranks
    int64_t steps = 0;
    double begin_seconds = 0;  // Progress::train_seconds
    int64_t begin_samples = 0, begin_tokens = 0;
  };
  void note_first_step(const Progress& progress, const StepResult& result);
  void write_line(Progress& progress, const StepResult& result);
  struct Speed {
    double seconds_per_step = 0, rate = 0;
    std::optional<double> utilization = {};
  };
  std::vector<monitor::Column> line_columns(const Progress& progress, const Speed& speed,
                                            const monitor::Metrics& line) const;
  monitor::LiveLine live_line(const Progress& progress) const;
  monitor::Column count_column(const Progress& progress) const;
  monitor::Column percent_column(const Progress& progress) const;
  monitor::Column rate_column(double rate) const;
  monitor::Column eta_column(const Progress& progress) const;
  double share_done(const Progress& progress) const;
  void begin_interval(const Progress& progress);

  Reporting reporting_;
  comm::ProcessGroups& groups_;
  at::Device device_;
  ModelFlops flops_;
  std::function<monitor::Metrics()> more_metrics_ = [] { return monitor::Metrics(); };
  std::function<std::string()> cost_;  // empty: the price is unknown
  Interval interval_;
  std::optional<StepResult> last_;
  std::optional<double> shown_loss_;  // in the redrawn line
  TimeLeft left_;
  Stopwatch since_line_;
  double first_step_seconds_ = 0;
  double first_step_end_ = 0;  // Progress::train_seconds at the end of the first step
  int64_t first_samples_ = 0, first_tokens_ = 0;
  double end_seconds_ = 0;
  int64_t end_samples_ = 0, end_tokens_ = 0;
};

/// Returns whether as many evaluations as early stopping allows brought no gain.
bool is_patience_over(const std::optional<EarlyStoppingSpec>& spec, const Progress& progress) noexcept;

/// Evaluates on data.val and records the best values. If a stop interrupted a due evaluation, the next attempt repeats
/// it before its first step.
class EvalHook final : public Hook {
 public:
  struct Parts {
    Evaluator evaluator;
    models::Model& model;
    comm::ProcessGroups& groups;
    Reporting reporting;
    StopReason own_stop;
    bool at_start = false;
    std::string best_metric = "val/loss";  // decides whether an evaluation is the best so far
    std::optional<EarlyStoppingSpec> early_stopping = {};
    /// Called on rank 0 with the details of an evaluation, see Evaluator::details_of().
    std::function<void(const nlohmann::ordered_json& details)> on_details = [](const auto&) {};
    /// Tells the schedule of the learning rate about an evaluation.
    std::function<void(const optim::Evaluated&, optim::Feedback&)> follow = [](const auto&, auto&) {};
    /// Runs an evaluation so that it may use the memory of the steps.
    std::function<void(const std::function<void()>&)> between_steps = [](const auto& work) { work(); };
  };
  explicit EvalHook(Parts parts) : parts_(std::move(parts)) {}
  void before_training(Progress& progress) override;
  Stop after_step(Progress& progress, const StepResult& result, bool requested) override;
  Stop after_training(Progress& progress, bool stopped) override;
  bool will_act(const Progress& progress, bool requested) const override;
  bool is_due() const override;

 private:
  Stop evaluate(Progress& progress);
  std::vector<monitor::Column> line_columns(int64_t step, const monitor::Metrics& metrics, double seconds,
                                            std::optional<double> best_before) const;
  void tell_details(int64_t step, const tasks::Totals& totals) const;
  double seconds_since_evaluation() const { return seconds_before_ + since_evaluation_.seconds(); }

  Parts parts_;
  bool has_begun_ = false;
  double seconds_before_ = 0;   // from the last evaluation to the end of the previous attempt
  Stopwatch since_evaluation_;  // or since the start of this attempt
};

/// background: written while training continues; announced: the same, with a message when it is on disk; durable: on
/// disk when the call returns, or an error.
enum class SaveMode { background, announced, durable };

/// Saves at intervals, on request, after the best evaluation so far, and at the end.
class SaveHook final : public Hook {
 public:
  struct Parts {
    Cadence cadence;
    SavePace* pace;           // on rank 0 if the cadence is auto; else null
    std::string best_metric;  // empty: does not save the best
    SaveRequests& requests;
    /// Every rank must call.
    std::function<void(const Progress& progress, SaveMode mode)> save;
    /// Handles writes that have completed.
    std::function<void()> look;
    /// Waits for running writes; returns whether the last save succeeded. Every rank must call.
    std::function<bool()> settle;
    int64_t saved_evaluation = -1;  // Progress::evaluated_step of the checkpoint that training resumed from
  };
  explicit SaveHook(Parts parts) : parts_(std::move(parts)), saved_evaluation_(parts_.saved_evaluation) {}
  void before_training(Progress& progress) override;
  void before_step(const Progress&) override { is_saved_ = false; }
  Stop after_step(Progress& progress, const StepResult& result, bool requested) override;
  Stop after_training(Progress& progress, bool stopped) override;
  bool will_act(const Progress& progress, bool requested) const override;
  bool is_due() const override;
  Stop while_held(Progress& progress, bool requested) override;

 private:
  void save_now(Progress& progress);
  void save(Progress& progress, SaveMode mode);
  bool is_best(const Progress& progress) const;
  void note_saved(const Progress& progress);

  Parts parts_;
  int64_t saved_step_ = 0, saved_evaluation_ = -1;  // Progress::step and evaluated_step of the newest checkpoint
  bool has_trained_ = false;                        // in this attempt
  bool is_saved_ = true;                            // since the last step began
  double train_seconds_ = 0;                        // Progress::train_seconds after the last step
  Stopwatch since_save_;
};

/// Returns the value of a metric, with always as many decimals: "1.3420", "91.25%".
std::string metric_text(const tasks::Metric& metric, double value);

/// Returns the metrics with this prefix ("val/"): first `main` ("val/loss"), then the others in the order of the
/// catalog.
std::vector<monitor::Column> metric_columns(const monitor::Metrics& metrics, const std::string& prefix,
                                            const std::string& main);

}  // namespace gputrain::train
