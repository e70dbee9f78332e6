#include "gputrain/train/plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/sample_usage.hpp"

namespace gputrain::train {
namespace {

/// Limits step counts to 2^62, which is longer than any run.
int64_t rounded(double steps) { return steps < 0x1p62 ? std::llround(steps) : int64_t{1} << 62; }

[[noreturn]] void refuse(std::string what, std::string hint) {
  throw Error(ExitCode::usage, {.what = std::move(what), .hint = std::move(hint)});
}

/// Returns the global batch in samples that the spec names; 0: none.
int64_t named_global_batch(const TrainSpec& spec, const PlanFacts& facts) {
  if (spec.global_batch_size && spec.global_batch_tokens) {
    refuse("train.global_batch_size and train.global_batch_tokens are both set", "keep one of the two");
  }
  if (!spec.global_batch_tokens) return spec.global_batch_size.value_or(0);
  if (facts.tokens_per_sample == 0) {
    refuse("train.global_batch_tokens is set but the data has no tokens", "use train.global_batch_size");
  }
  const int64_t tokens = *spec.global_batch_tokens;
  if (tokens % facts.tokens_per_sample != 0) {
    const int64_t nearest = std::max<int64_t>(1, tokens / facts.tokens_per_sample) * facts.tokens_per_sample;
    refuse("train.global_batch_tokens " + std::to_string(tokens) + " is not a multiple of the sequence length " +
               std::to_string(facts.tokens_per_sample),
           "train.global_batch_tokens: " + std::to_string(nearest));
  }
  return tokens / facts.tokens_per_sample;
}

[[noreturn]] void refuse_empty_passes(const TrainSpec& spec, int64_t passes, int64_t samples) {
  const std::string global = spec.global_batch_tokens
                                 ? "train.global_batch_tokens " + std::to_string(*spec.global_batch_tokens)
                                 : "train.global_batch_size " + std::to_string(*spec.global_batch_size);
  refuse("train.gradient_accumulation_steps " + std::to_string(passes) + " is more than the " +
             counted(samples, "sample") + " of " + global,
         "at most train.gradient_accumulation_steps: " + std::to_string(samples) + ", or a larger global batch");
}

int64_t nearest_step(const UniformSteps& uniform, double steps) {
  const double before_whole = uniform.at(uniform.whole) - steps;
  if (before_whole <= 0 || uniform.first == uniform.whole) return uniform.origin + rounded(steps);
  const double each = uniform.at(uniform.whole) - uniform.at(uniform.whole - 1);
  return uniform.whole - rounded(before_whole / each);
}

/// Returns uniform steps over so many tokens: the last step of an epoch may hold fewer than the others.
double uniform_steps_of(double tokens, const Plan& plan) {
  const double samples =
      tokens / static_cast<double>(plan.tokens_per_step) * static_cast<double>(plan.batch.global_batch);
  const double epochs = std::floor(samples / static_cast<double>(plan.samples_per_epoch));
  const double rest = samples - epochs * static_cast<double>(plan.samples_per_epoch);
  return epochs * static_cast<double>(plan.steps_per_epoch) + rest / static_cast<double>(plan.batch.global_batch);
}

/// Returns the first step after which training has used so many samples.
int64_t step_with_samples(int64_t samples, const Plan& plan) {
  const int64_t epoch = samples / plan.samples_per_epoch, rest = samples % plan.samples_per_epoch;
  const auto steps = [&](int64_t of) { return ceil_divide(of, plan.batch.global_batch); };
  if (plan.start.step > 0 && epoch == plan.start.position.epoch)
    return plan.start.step + steps(std::max<int64_t>(0, rest - plan.start.position.samples));
  return plan.uniform.origin + epoch * plan.steps_per_epoch + steps(rest);
}

void plan_end(const TrainSpec& spec, const PlanFacts& facts, Plan& plan) {
  int64_t total = INT64_MAX;
  const auto end_at = [&](int64_t step, double uniform_end, const char* key) {
    if (step >= total) return;
    total = std::max({int64_t{1}, plan.start.step, step});
    plan.uniform_end = uniform_end;
    plan.limit = key;
  };
  if (spec.max_epochs) {
    const double end = *spec.max_epochs * static_cast<double>(plan.steps_per_epoch);
    end_at(nearest_step(plan.uniform, end), end, "train.max_epochs");
  }
  if (spec.max_tokens) {
    if (plan.tokens_per_step == 0) refuse("train.max_tokens is set but the data has no tokens", "use train.max_epochs");
    end_at(step_with_samples(ceil_divide(*spec.max_tokens, facts.tokens_per_sample), plan),
           uniform_steps_of(static_cast<double>(*spec.max_tokens), plan), "train.max_tokens");
  }
  plan.ends_by_steps = spec.max_steps && *spec.max_steps < total;
  if (plan.ends_by_steps) {
    total = *spec.max_steps;
    plan.limit = "train.max_steps";
  }
  if (total == INT64_MAX && !spec.max_time) {
    refuse("no limit of training is set", "add one of train.max_epochs, max_steps, max_tokens, max_time");
  }
  plan.total_steps = total;
}

UniformSteps uniform_steps(const PlanFacts& facts, int64_t global_batch) {
  if (facts.start.step == 0) return {};
  const data::OrderFacts order{.samples = facts.dataset_size,
                               .global_batch = global_batch,
                               .drop_last = facts.drop_last,
                               .first_step = facts.start.step,
                               .from = facts.start.position};
  const int64_t per_epoch = data::steps_per_epoch(order);
  const int64_t origin = facts.start.step - data::uniform_step(order, facts.start.step);
  return {.origin = origin,
          .first = facts.start.step,
          .whole = origin + (facts.start.position.epoch + 1) * per_epoch,
          .at_first = facts.start.epochs * static_cast<double>(per_epoch)};
}

int64_t steps_per_epoch(const PlanFacts& facts, int64_t global_batch) {
  if (!facts.drop_last) return ceil_divide(facts.dataset_size, global_batch);
  if (facts.dataset_size < global_batch) {
    refuse("one global batch (" + std::to_string(global_batch) + ") is more than the training data (" +
               counted(facts.dataset_size, "sample") + ") and data.last is drop",
           "lower train.global_batch_size or set data.last: pad");
  }
  return facts.dataset_size / global_batch;
}

/// Returns the cadence of saves. With keep_every, it also saves at its multiples: only saved checkpoints can be kept.
Cadence save_cadence(const CheckpointSpec& spec, const Plan& plan) {
  Cadence cadence{.is_auto = spec.interval && spec.interval->is_auto()};
  if (!cadence.is_auto)
    cadence = plan.cadence_of(spec.interval ? spec.interval->value : std::nullopt, "checkpoint.interval");
  if (spec.keep_every) {
    cadence.also_steps = std::max<int64_t>(1, plan.steps_of(*spec.keep_every, "checkpoint.keep_every"));
    cadence.also_uniform = plan.uniform_of(spec.keep_every->unit);
  }
  return cadence;
}

Cadence log_cadence(const monitor::LogSpec& spec, const Plan& plan) {
  constexpr int64_t kMostSteps = 50, kLines = 10;
  if (!spec.interval.is_auto()) return plan.cadence_of(spec.interval.value, "log.interval");
  if (plan.start.log_steps > 0) return {.steps = plan.start.log_steps};
  return {.steps = std::clamp<int64_t>(plan.total_steps / kLines, 1, kMostSteps)};
}

}  // namespace

bool UniformSteps::reaches_multiple(int64_t step, int64_t every) const noexcept {
  if (step > whole || first == whole) return (step - origin) % every == 0;
  constexpr double kRounding = 1e-9;
  const auto multiples = [&](double steps) { return std::floor(steps / static_cast<double>(every) + kRounding); };
  if (step > first) return multiples(at(step)) > multiples(at(step - 1));
  return multiples(at_first) > multiples(at_first - 2 * kRounding * static_cast<double>(every));
}

int64_t Cadence::times_in(int64_t after, int64_t until) const noexcept {
  const auto count = [&](const UniformSteps& counted, int64_t every) {
    if (every == 0 || until <= after) return int64_t{0};
    constexpr double kRounding = 1e-9;
    const auto multiples = [&](int64_t step) {
      return std::floor(counted.at(step) / static_cast<double>(every) + kRounding);
    };
    return static_cast<int64_t>(multiples(until) - multiples(after));
  };
  return std::max(count(uniform, steps), count(also_uniform, also_steps));  // mostly some of the same steps
}

double Plan::epochs_in(int64_t steps) const noexcept {
  return uniform.at(steps) / static_cast<double>(steps_per_epoch);
}

UniformSteps Plan::uniform_of(config::Length::Unit unit) const noexcept {
  if (unit == config::Length::Unit::steps) return {};
  return unit == config::Length::Unit::percent ? shares() : uniform;
}

double Plan::curve_step(int64_t step) const noexcept {
  const double at = shares().at(step);
  if (start.step == 0 || ends_by_steps || is_time_limited()) return at;
  return at * (static_cast<double>(curve_steps()) / uniform_end);
}

double Plan::seconds_left(int64_t step, double seconds_so_far, double seconds_per_step) const noexcept {
  const double of_time = max_seconds > 0 ? max_seconds - seconds_so_far : std::numeric_limits<double>::infinity();
  if (is_time_limited()) return std::max(0.0, of_time);
  return std::max(0.0, std::min(of_time, seconds_per_step * static_cast<double>(total_steps - step)));
}

int64_t Plan::steps_of(const config::Length& length, const std::string& key) const {
  using Unit = config::Length::Unit;
  switch (length.unit) {
    case Unit::steps:
      return rounded(length.value);
    case Unit::epochs:
      return rounded(length.value * static_cast<double>(steps_per_epoch));
    case Unit::percent:
      if (is_time_limited()) {
        refuse(key + " is a percentage, but the number of steps of the run is unknown",
               "give " + key + " in steps or epochs");
      }
      return rounded(length.value / 100 * static_cast<double>(curve_steps()));
    case Unit::tokens:
      if (tokens_per_step == 0)
        refuse(key + " is in tokens but the data has none", "give " + key + " in steps or epochs");
      return rounded(uniform_steps_of(length.value, *this));
    case Unit::seconds:
      refuse(key + " cannot be a time", "give " + key + " in steps or epochs");
  }
  return 0;
}

int64_t Plan::steps_of_curve(const config::Length& length, const std::string& key) const {
  using Unit = config::Length::Unit;
  const int64_t steps = steps_of(length, key);
  if (start.first_global_batch == 0 || length.unit == Unit::percent) return steps;
  const double growth = static_cast<double>(batch.global_batch) / static_cast<double>(start.first_global_batch);
  if (length.unit == Unit::steps) return ends_by_steps ? steps : rounded(static_cast<double>(steps) / growth);
  return ends_by_steps ? rounded(static_cast<double>(steps) * growth) : steps;
}

Cadence Plan::cadence_of(const std::optional<config::Length>& length, const std::string& key) const {
  if (!length) return {};
  if (length->unit == config::Length::Unit::seconds) return {.seconds = length->value};
  return {.steps = std::max<int64_t>(1, steps_of(*length, key)), .uniform = uniform_of(length->unit)};
}

BatchPlan plan_batch(const TrainSpec& spec, const PlanFacts& facts) {
  int64_t global = named_global_batch(spec, facts);
  const int64_t world = facts.world_size;
  const std::optional<int64_t> micro = spec.micro_batch_size ? spec.micro_batch_size->value : std::nullopt;
  int64_t accumulation = spec.gradient_accumulation_steps.value.value_or(0);
  if (global == 0 && !micro) {
    refuse("no batch size is given", "add train.global_batch_size (samples per optimizer step)");
  }
  const int64_t together = micro.value_or(0) * world;
  int64_t aliases = 0;
  if (global == 0) {
    global = together * std::max<int64_t>(1, accumulation);
    if (facts.kept_global_batch > 0 && facts.kept_global_batch != global) {
      aliases = std::exchange(global, facts.kept_global_batch);
      accumulation = 0;
    }
  }
  if (global < world) {
    refuse("a global batch of " + std::to_string(global) + " cannot be shared by " + std::to_string(world) + " ranks",
           "raise train.global_batch_size to at least " + std::to_string(world));
  }
  const int64_t share = ceil_divide(global, world);  // the largest equal share; some ranks have one sample less
  if (!micro) {
    if (accumulation > global) refuse_empty_passes(spec, accumulation, global);
    const int64_t parts = std::min(share, std::max<int64_t>(1, accumulation));
    return {.global_batch = global, .micro_batch = ceil_divide(share, parts), .accumulation = parts};
  }
  if (accumulation > 0 && together * accumulation != global) {
    refuse("train.global_batch_size " + std::to_string(global) + " is not micro_batch_size " + std::to_string(*micro) +
               " x gradient_accumulation_steps " + std::to_string(accumulation) + " x " + counted(world, "rank"),
           "leave one of the three out; it follows from the others");
  }
  return {.global_batch = global,
          .micro_batch = std::min(*micro, share),
          .accumulation = ceil_divide(global, together),
          .aliases = aliases};
}

std::vector<int64_t> micro_batches_to_try(int64_t share) {
  std::vector<int64_t> sizes;
  for (int64_t largest = share, next; sizes.empty() || sizes.back() > 1; largest = next) {
    next = ceil_divide(largest, 2);
    int64_t size = largest;
    while (size > next && share % size != 0) --size;
    sizes.push_back(size > next || largest == 1 ? size : largest);
  }
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

Plan make_plan(const TrainSpec& train, const EvalSpec& eval, const CheckpointSpec& checkpoint,
               const monitor::LogSpec& log, const PlanFacts& facts) {
  Plan plan;
  plan.batch = plan_batch(train, facts);
  plan.tokens_per_step = plan.batch.global_batch * facts.tokens_per_sample;
  plan.steps_per_epoch = steps_per_epoch(facts, plan.batch.global_batch);
  plan.samples_per_epoch = facts.drop_last ? plan.steps_per_epoch * plan.batch.global_batch : facts.dataset_size;
  plan.start = facts.start;
  plan.uniform = uniform_steps(facts, plan.batch.global_batch);
  plan_end(train, facts, plan);
  plan.max_seconds = train.max_time ? train.max_time->seconds : 0;
  plan.eval = plan.cadence_of(eval.interval, "eval.interval");
  plan.save = save_cadence(checkpoint, plan);
  plan.log = log_cadence(log, plan);
  if (eval.sample) plan.sample = plan.cadence_of(eval.sample->interval, "eval.sample.interval");
  return plan;
}

}  // namespace gputrain::train
