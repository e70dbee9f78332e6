#include "gputrain/estimate/predicted_activations.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/parallel/timetable.hpp"
#include "gputrain/setup/trial_step.hpp"

namespace gputrain::app {
namespace {

constexpr int64_t kMostSamples = 8;          // limit for a measured step
constexpr int64_t kOffloadedOnDevice = 2;    // blocks whose inputs are there: one that computes, one on its way
constexpr int64_t kGradientsOnTheirWay = 2;  // buffers between stages of a pipeline
/// Limits per sample, so that two hundred samples take some seconds; and for its weights, gradients and state.
constexpr double kQuickFlops = 1e9;
constexpr int64_t kQuickBytes = int64_t{256} << 20;

/// Returns the last unit with a block, among those that the stage has.
int64_t last_block_of(const RankLayout& layout, int64_t stages) {
  int64_t last = 0;
  for (int64_t part = layout.stage; part < std::ssize(layout.parts); part += stages)
    last = std::min(layout.parts[static_cast<size_t>(part)].end, layout.units - 1) - 1;
  return last;
}

/// Returns the peak of a backward pass that sends gradients: blocks after the current unit have freed activations.
int64_t most_of(const RankLayout& layout, int64_t last_block, int64_t activations, double freed_by_a_block) {
  const int64_t blocks = layout.parts[static_cast<size_t>(layout.stage)].blocks;
  int64_t most = 0;
  for (const BackwardMoment& moment : layout.moments) {
    const auto behind = static_cast<double>(std::clamp<int64_t>(last_block - moment.unit, 0, blocks));
    most = std::max(most, activations - static_cast<int64_t>(behind * freed_by_a_block) + moment.bytes);
  }
  return most;
}

/// Most that a stage of a pipeline holds between forward and backward passes.
struct Held {
  int64_t blocks = 0;   // each of one micro-batch
  int64_t outputs = 0;  // results sent to the next stage, each of one micro-batch
};

Held most_held(const PlanCandidate& candidate, const RankLayout& layout) {
  const int64_t stages = candidate.pipeline;
  if (stages == 1) return {.blocks = layout.parts.front().blocks};
  // Further micro-batches do not change the peak.
  const int64_t enough = stages * candidate.virtual_stages;
  const parallel::PipelineShape shape{
      .stages = stages, .parts = candidate.virtual_stages, .micro_batches = std::min(candidate.accumulation, enough)};
  Held now, most;
  for (const parallel::Pass& pass : parallel::passes_of(shape, layout.stage)) {
    const int64_t part = pass.part * stages + layout.stage, sign = pass.is_forward ? 1 : -1;
    now.blocks += sign * layout.parts[static_cast<size_t>(part)].blocks;
    if (part + 1 < std::ssize(layout.parts)) now.outputs += sign;
    most = {.blocks = std::max(most.blocks, now.blocks), .outputs = std::max(most.outputs, now.outputs)};
  }
  return most;
}

/// Returns what is held before the last backward pass.
Held held_at_end(const PlanCandidate& candidate, const RankLayout& layout) {
  const auto part = static_cast<size_t>(layout.stage);
  return {.blocks = layout.parts[part].blocks, .outputs = candidate.pipeline > 1 && part + 1 < layout.parts.size()};
}

/// Interpolates between the two points beside `samples`, or extends the last two; a single one stands for one sample.
int64_t value_at(const std::vector<std::pair<int64_t, int64_t>>& curve, int64_t samples) {
  if (curve.size() == 1) return curve[0].second * samples;
  size_t after = 1;
  while (after + 1 < curve.size() && curve[after].first < samples) ++after;
  const auto [x0, y0] = curve[after - 1];
  const auto [x1, y1] = curve[after];
  return y0 + (y1 - y0) * (samples - x0) / (x1 - x0);
}

}  // namespace

PredictedActivations::PredictedActivations(const Job& job, const JobDatasets& datasets, const RankContext& context)
    : job_(job), datasets_(datasets), context_(context) {
  const Job whole = job_of(job, {});
  RankContext alone = simulate_rank(whole, {}, std::make_shared<comm::CollectiveTraffic>());
  const BuiltModel built = model_without_memory(whole, datasets, alone);
  const auto parameters = static_cast<double>(built.parameter_count);
  const double flops = std::max(built.model->flops_per_sample(), 6 * parameters);
  const bool is_quick = flops <= kQuickFlops && built.arena->numel() * built.arena->element_bytes() <= kQuickBytes;
  way_ = is_quick ? Way::each : can_scale(job) ? Way::scaled : Way::one;
  if (!can_scale(job)) return;
  const auto element = static_cast<int64_t>(at::elementSize(context.policy.compute));
  hidden_ = datasets.tokens_per_sample() * decoder_sizes(job).channels * element;
}

void PredictedActivations::expect(const SampleRanks& ranks) {
  const SampleRanks all{.tensor = std::max(expected_.tensor, ranks.tensor),
                        .context = std::max(expected_.context, ranks.context)};
  const bool is_new = (all.tensor > 1) != (expected_.tensor > 1) || (all.context > 1) != (expected_.context > 1);
  if (is_new) scaled_.clear();
  expected_ = all;
}

std::string PredictedActivations::text() const {
  std::string scaled;
  if (!scaled_.empty()) {
    scaled = "scaled from decoders of 2 blocks with 1/" + std::to_string(scaled_.begin()->second.divisor) +
             " of the channels, measured here";
  }
  if (way_ == Way::each)
    return "measured here, as in a dry run" + (scaled.empty() ? "" : "; where ranks share samples: " + scaled);
  if (way_ == Way::one) return "measured here with one rank; what ranks share is added";
  GPUTRAIN_ASSERT(!scaled_.empty(), "bytes() was called");
  return scaled + "; what ranks share is added";
}

PredictedActivations::Curves PredictedActivations::measured(const PlanCandidate& candidate) const {
  const bool is_each = way_ == Way::each;
  const Job variant = without_pretrained(job_of(job_, candidate));
  const comm::Rendezvous at = is_each ? context_.launch.rendezvous : comm::Rendezvous{};
  TrainingSetup setup(
      variant, simulate_rank(variant, at, std::make_shared<comm::CollectiveTraffic>()), [&] { return datasets_; },
      /*kept_global_batch=*/0, Weights::made_up);
  const int64_t share = candidate.micro_batch * candidate.accumulation;
  const int64_t most = std::min(share, is_each ? kMostSamples : 2);
  Curves curves;
  for (int64_t samples = 1; samples <= most; samples *= 2) {
    const TrialStep step = take_trial_step(variant, setup, samples);
    curves.on_device.emplace_back(samples, step.peak_bytes);
    curves.on_host.emplace_back(samples, step.host_bytes);
  }
  return curves;
}

const PredictedActivations::Curves& PredictedActivations::curves_of(const PlanCandidate& candidate) {
  PlanCandidate kind = candidate;
  kind.replicate = 1;
  if (way_ != Way::each) kind.shard = "none";
  Curves& curves = measured_[kind.checkpointing + " " + kind.shard];
  if (curves.on_device.empty()) curves = measured(kind);
  return curves;
}

const BlockActivations& PredictedActivations::scaled(const std::string& checkpointing) {
  const auto found = scaled_.find(checkpointing);
  if (found != scaled_.end()) return found->second;
  const TextFacts texts{.tokens = datasets_.tokens_per_sample(), .vocabulary = datasets_.facts.vocabulary};
  BlockActivations& made = scaled_[checkpointing] = scaled_activations(job_, checkpointing, texts, expected_);
  if (!matrices_) matrices_ = scaled_matrices(job_, texts);
  made.matrices = *matrices_;
  return made;
}

int64_t PredictedActivations::scaled_bytes(const PlanCandidate& candidate, const RankLayout& layout) {
  const BlockActivations& found = scaled(candidate.checkpointing);
  const SampleRanks ranks{.tensor = candidate.tensor, .context = candidate.context};
  const int64_t samples = candidate.micro_batch, stages = candidate.pipeline;
  const bool has_head = layout.stage + 1 == stages, is_pipeline = stages > 1;
  const int64_t hidden = is_pipeline ? hidden_ * samples / candidate.context : 0;
  // In a pipeline, a gradient comes from the next stage while another one is being sent to the previous stage.
  const bool is_offloaded = offloads(candidate);
  const auto bytes_of = [&](const Held& held) {
    const int64_t blocks = is_offloaded ? std::min(held.blocks, kOffloadedOnDevice) : held.blocks;
    return found.bytes(samples, blocks, has_head, ranks) + hidden * (held.outputs + kGradientsOnTheirWay);
  };
  const int64_t most = bytes_of(most_held(candidate, layout));
  // Gradients are sent in every pass, or only in the last one.
  const int64_t while_sending = layout.shares_gradients ? most : bytes_of(held_at_end(candidate, layout));
  // Gradients of a head that is computed in parts are summed, beside those of one part.
  const bool has_parts = has_head && layout.shares_gradients && found.has_parts(samples, ranks);
  const int64_t of_parts = has_parts ? 2 * layout.largest_of_head : 0;
  const double freed = is_offloaded ? 0 : found.per_block.on(ranks) * static_cast<double>(samples);
  return of_parts + std::max(most, most_of(layout, last_block_of(layout, stages), while_sending, freed));
}

bool PredictedActivations::is_scaled(const PlanCandidate& candidate) const {
  return way_ == Way::scaled || candidate.ranks_of_a_sample() > 1;
}

bool PredictedActivations::offloads(const PlanCandidate& candidate) const {
  return job_.spec().train.offload.activations && candidate.checkpointing == "block";
}

int64_t PredictedActivations::bytes_on_host(const PlanCandidate& candidate, const RankLayout& layout) {
  if (!offloads(candidate)) return 0;
  if (!is_scaled(candidate)) return value_at(curves_of(candidate).on_host, candidate.micro_batch);
  const double of_a_block = scaled(candidate.checkpointing).per_block.on({candidate.tensor, candidate.context});
  return static_cast<int64_t>(of_a_block *
                              static_cast<double>(candidate.micro_batch * most_held(candidate, layout).blocks));
}

int64_t PredictedActivations::bytes(const PlanCandidate& candidate, const RankLayout& layout) {
  if (is_scaled(candidate)) return scaled_bytes(candidate, layout);
  const int64_t activations = value_at(curves_of(candidate).on_device, candidate.micro_batch);
  return way_ == Way::each ? activations : std::max(activations, most_of(layout, layout.units - 2, activations, 0));
}

}  // namespace gputrain::app
