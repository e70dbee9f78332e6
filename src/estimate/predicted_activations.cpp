#include "gputrain/estimate/predicted_activations.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/setup/trial_step.hpp"

namespace gputrain::app {
namespace {

constexpr int64_t kMostSamples = 8;  // of a measured step
/// Of a sample, so that two hundred samples take some seconds; and of the weights, gradients and state that they
/// need.
constexpr double kQuickFlops = 1e9;
constexpr int64_t kQuickBytes = int64_t{256} << 20;

/// The most over the backward pass: units behind the one that computes have given back what they kept.
int64_t most_of(const RankLayout& layout, int64_t activations, double freed_by_a_unit) {
  int64_t most = activations;
  for (const BackwardMoment& moment : layout.moments) {
    const auto behind = static_cast<double>(
        std::clamp<int64_t>(layout.units - 2 - moment.unit, 0, std::max<int64_t>(0, layout.units - 2)));
    most = std::max(most, activations - static_cast<int64_t>(behind * freed_by_a_unit) + moment.bytes);
  }
  return most;
}

/// On the line through the two points beside `samples`, or the last two; a single one stands for one sample.
int64_t value_at(const std::vector<std::pair<int64_t, int64_t>>& curve, int64_t samples) {
  if (curve.size() == 1) return curve[0].second * samples;
  size_t after = 1;
  while (after + 1 < curve.size() && curve[after].first < samples) ++after;
  const auto [x0, y0] = curve[after - 1];
  const auto [x1, y1] = curve[after];
  return y0 + (y1 - y0) * (samples - x0) / (x1 - x0);
}

}  // namespace

PredictedActivations::PredictedActivations(const Job& job, const JobDatasets& datasets, const RankContext& context,
                                           int64_t share)
    : job_(job), datasets_(datasets), context_(context), share_(share) {
  RankContext alone = simulate_rank(job, {}, std::make_shared<comm::CollectiveTraffic>());
  JobSpec spec = job.spec();
  spec.parallel.shard = "none";
  Job said = job;
  said.loaded = job.loaded.with(std::move(spec));
  const BuiltModel built = model_without_memory(said, datasets, alone);
  const auto parameters = static_cast<double>(built.parameter_count);
  const double flops = std::max(built.model->flops_per_sample(), 6 * parameters);
  const bool is_quick = flops <= kQuickFlops && built.arena->numel() * built.arena->element_bytes() <= kQuickBytes;
  way_ = is_quick ? Way::each : can_scale(job) ? Way::scaled : Way::one;
}

std::string PredictedActivations::text() const {
  if (way_ == Way::each) return "measured here, as in a dry run";
  if (way_ == Way::one) return "measured here with one rank; what ranks share is added";
  GPUTRAIN_ASSERT(!scaled_.empty(), "bytes() was called");
  return "scaled from decoders of 2 blocks with 1/" + std::to_string(scaled_.begin()->second.divisor) +
         " of the channels, measured here; what ranks share is added";
}

PredictedActivations::Curve PredictedActivations::measured(const Job& variant) const {
  const bool is_each = way_ == Way::each;
  const comm::Rendezvous at = is_each ? context_.launch.rendezvous : comm::Rendezvous{};
  TrainingSetup setup(variant, simulate_rank(variant, at, std::make_shared<comm::CollectiveTraffic>()),
                      [&] { return datasets_; });
  const int64_t most = std::min(share_, is_each ? kMostSamples : 2);
  Curve curve;
  for (int64_t samples = 1; samples <= most; samples *= 2)
    curve.emplace_back(samples, take_trial_step(variant, setup, samples).peak_bytes);
  return curve;
}

const PredictedActivations::Curve& PredictedActivations::curve_of(const Job& variant) {
  JobSpec spec = variant.spec();
  if (way_ != Way::each) spec.parallel.shard = "none";
  Curve& curve = measured_[spec.train.activation_checkpointing + " " + spec.parallel.shard];
  if (curve.empty()) {
    Job said = variant;
    said.loaded = variant.loaded.with(std::move(spec));
    curve = measured(said);
  }
  return curve;
}

const BlockActivations& PredictedActivations::scaled(const std::string& checkpointing) {
  const auto found = scaled_.find(checkpointing);
  if (found != scaled_.end()) return found->second;
  const TextFacts texts{.tokens = datasets_.tokens_per_sample(), .vocabulary = datasets_.facts.vocabulary};
  return scaled_[checkpointing] = scaled_activations(job_, checkpointing, texts);
}

int64_t PredictedActivations::bytes(const Job& variant, const RankLayout& layout, int64_t samples) {
  const std::string& checkpointing = variant.spec().train.activation_checkpointing;
  if (way_ == Way::scaled) {
    const BlockActivations& found = scaled(checkpointing);
    // Gradients of a head that is computed in parts are summed beside those of one part.
    const int64_t of_parts = layout.shares_gradients && found.has_parts(samples) ? 2 * layout.largest_of_head : 0;
    return of_parts + most_of(layout, found.bytes(samples), found.per_block * static_cast<double>(samples));
  }
  const int64_t activations = value_at(curve_of(variant), samples);
  return way_ == Way::each ? activations : most_of(layout, activations, 0);
}

}  // namespace gputrain::app
