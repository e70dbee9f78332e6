#include "gputrain/estimate/plan_search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/estimate/layer_traffic.hpp"
#include "gputrain/estimate/pipeline_time.hpp"
#include "gputrain/estimate/plan_meshes.hpp"
#include "gputrain/estimate/predicted_activations.hpp"
#include "gputrain/models/packed_layers.hpp"
#include "gputrain/setup/compatibility.hpp"

namespace gputrain::app {
namespace {

constexpr int kMostRanks = 1 << 20;

/// Combines each of `candidates` with each of `values`.
template <class Value>
std::vector<PlanCandidate> each(const std::vector<PlanCandidate>& candidates, Value PlanCandidate::*member,
                                const std::vector<Value>& values) {
  std::vector<PlanCandidate> all;
  for (const PlanCandidate& one : candidates) {
    for (const Value& value : values) {
      all.push_back(one);
      all.back().*member = value;
    }
  }
  return all;
}

/// Returns whether a run would accept the job with these settings.
bool is_compatible(const Job& job, const PlanCandidate& candidate) {
  return broken_rules(features_of(job_of(job, candidate).spec())).empty();
}

/// Returns the degrees that the job sets.
PlanCandidate fixed_of(const JobSpec& spec) {
  const auto& parallel = spec.parallel;
  return {.context = parallel.context,
          .tensor = parallel.tensor,
          .pipeline = parallel.pipeline,
          .virtual_stages = parallel.virtual_stages};
}

/// Settings of a candidate that decide what ranks hold and send.
using Sharing = std::tuple<std::string, int64_t, int64_t, int64_t, int64_t>;
Sharing sharing_of(const PlanCandidate& one) {
  return {one.shard, one.replicate, one.tensor, one.pipeline, one.virtual_stages};
}

RankContext simulated(const Job& job, int world_size, int64_t ranks_per_host, int64_t rank) {
  const auto each_host = std::min<int64_t>(ranks_per_host, world_size);
  return simulate_rank(job,
                       {.rank = static_cast<int>(rank),
                        .world_size = world_size,
                        .local_rank = static_cast<int>(rank % each_host),
                        .local_world_size = static_cast<int>(each_host)},
                       std::make_shared<comm::CollectiveTraffic>());
}

/// Returns the samples in each step of ranks that share them. Throws Error(usage) if that is no whole number.
int64_t share_of(const train::BatchPlan& batch, int64_t ranks) {
  if (batch.global_batch % ranks == 0) return batch.global_batch / ranks;
  const int64_t fewer = batch.global_batch / ranks * ranks;
  throw Error(ExitCode::usage, {.what = fmt::format("a global batch of {} does not divide among {} equally",
                                                    counted(batch.global_batch, "sample"), counted(ranks, "rank")),
                                .where = "train.global_batch_size",
                                .hint = fmt::format("--set train.global_batch_size={}",
                                                    fewer > 0 ? fmt::format("{} or {}", fewer, fewer + ranks)
                                                              : fmt::format("{}", ranks))});
}

/// Layouts of the first and the last stage, which are the same without a pipeline.
struct StageLayouts {
  RankLayout first;
  std::optional<RankLayout> last;

  const RankLayout& of(const ModelPart& part) const { return last && part.end == last->units ? *last : first; }
};

/// Search with the facts that all candidates have in common, and the layouts found for each way to share the model.
class PlanSearch {
 public:
  /// `request`: with the number of ranks of all searches.
  PlanSearch(const Job& job, const PlanRequest& request)
      : job_(job),
        request_(request),
        fixed_(fixed_of(job.spec())),
        datasets_(open_datasets(job, Purpose::planning)),
        context_(first_of(fixed_)),
        activations_(job, datasets_, context_) {
    RankContext alone = simulated(job_of(job, {}), 1, 1, 0);
    const BuiltModel built = model_without_memory(job_of(job, {}), datasets_, alone);
    parameters_ = built.parameter_count;
    take_operations(built);
    for (const std::string kind : {"none", "selective", "block"}) {
      const bool is_asked = kind == "block" || !job.spec().train.offload.activations;
      if (is_asked && is_compatible(job, {.checkpointing = kind})) checkpointings_.push_back(kind);
    }
    take_sizes();
    meshes_ = meshes_among(request.world_size);
    plan_ = plan_of_any();
  }

  Plans search(const PlanRequest& request) {
    request_ = request;
    Plans plans{.global_batch = plan_.batch.global_batch,
                .tokens_per_sample = datasets_.tokens_per_sample(),
                .parameters = parameters_,
                .steps = plan_.total_steps,
                .max_seconds = plan_.max_seconds};
    std::optional<PlanRow> nearest;  // smallest of those that are left out
    for (const PlanCandidate& candidate : candidates()) {
      PlanRow row = memory_of(candidate, layouts_of(candidate));
      if (has_own_degrees(candidate) || fits(row.bytes())) {
        add_time(row);
        plans.all.push_back(std::move(row));
      } else if (!nearest || row.bytes() < nearest->bytes()) {
        nearest = std::move(row);
      }
    }
    if (nearest && std::ranges::none_of(plans.all, [&](const PlanRow& row) { return fits(row.bytes()); })) {
      add_time(*nearest);
      plans.all.push_back(*nearest);
    }
    plans.how_activations = activations_.text();
    std::ranges::copy_if(plans.all, std::back_inserter(plans.fitting),
                         [&](const PlanRow& row) { return fits(row.bytes()); });
    // Times are compared in steps of 1 %, which is finer than the model's accuracy.
    const auto order = [](const PlanRow& row) {
      return std::pair(std::llround(std::log(row.time.total()) / std::log(1.01)), row.bytes());
    };
    std::ranges::stable_sort(plans.fitting, {}, order);
    if (plans.fitting.empty() && request.finds_ranks) plans.ranks_that_would_fit = ranks_that_would_fit();
    return plans;
  }

 private:
  bool fits(int64_t bytes) const {
    return static_cast<double>(bytes) <= (1 - kKeptMemory) * static_cast<double>(request_.device_bytes);
  }

  /// Returns whether as many ranks share a sample as in the job.
  bool has_own_degrees(const PlanCandidate& candidate) const {
    return candidate.ranks_of_a_sample() == fixed_.ranks_of_a_sample();
  }

  RankContext first_of(const PlanCandidate& candidate) const {
    return simulated(job_of(job_, candidate), request_.world_size, request_.rates.ranks_per_host, 0);
  }

  /// Lists the meshes, the one with the job's own degrees first.
  std::vector<PlanCandidate> meshes_among(int ranks) const {
    if (!can_scale(job_)) return {fixed_};
    std::vector<PlanCandidate> meshes = meshes_of({.ranks = ranks,
                                                   .ranks_per_host = request_.rates.ranks_per_host,
                                                   .sizes = sizes_,
                                                   .tokens = traffic_.tokens,
                                                   .fixed = fixed_});
    std::erase_if(meshes, [&](const auto& one) { return !is_compatible(job_, one); });
    return meshes;
  }

  /// Counts operations, and the memory traffic of products with packed weights, each of which makes its matrix anew.
  /// Frozen weights have no gradient, which is a third of the operations with a weight.
  void take_operations(const BuiltModel& built) {
    flops_ = built.model->flops_per_sample();
    if (flops_ == 0) flops_ = 6 * static_cast<double>(built.parameter_count);
    forward_share_ = 1 / (2 + static_cast<double>(built.trainable_count) / static_cast<double>(built.parameter_count));
    flops_ /= 3 * forward_share_;
    const std::map<std::string, int64_t> packed = models::weights_of_packed(*built.model);
    const auto element = static_cast<int64_t>(at::elementSize(context_.policy.compute));
    built.model->each_parameter([&](const std::string& name, const nn::Parameter& parameter) {
      const auto found = packed.find(name);
      if (found != packed.end())
        unpacked_bytes_ += static_cast<int64_t>(parameter.value.nbytes()) + found->second * element;
    });
  }

  void take_sizes() {
    if (!can_scale(job_)) return;
    sizes_ = decoder_sizes(job_);
    traffic_ = {.tokens = datasets_.tokens_per_sample(),
                .channels = sizes_.channels,
                .key_channels = sizes_.key_heads * sizes_.head_channels,
                .compute_bytes = static_cast<int64_t>(at::elementSize(context_.policy.compute)),
                .embedding_bytes = static_cast<int64_t>(at::elementSize(context_.policy.master))};
  }

  /// Returns the number of groups of ranks with samples of their own.
  int64_t groups_of(const PlanCandidate& mesh) const { return request_.world_size / mesh.ranks_of_a_sample(); }

  /// Returns the plan of the first mesh that can have the job's batch. Throws the error of the first mesh if none can.
  train::Plan plan_of_any() const {
    std::optional<Error> mistake;
    for (const PlanCandidate& mesh : meshes_) {
      try {
        train::Plan plan = plan_run(job_of(job_, mesh).spec(), datasets_, first_of(mesh));
        share_of(plan.batch, groups_of(mesh));
        return plan;
      } catch (const Error& refused) {
        if (!mistake) mistake = refused;
      }
    }
    throw Error(*mistake);
  }

  /// Lists the sharings of a mesh, without the sizes of the batch.
  std::vector<PlanCandidate> sharings_of(const PlanCandidate& mesh) const {
    const int64_t in_host = request_.rates.ranks_per_host;
    std::vector<PlanCandidate> all = each({mesh}, &PlanCandidate::shard, app::shards_of(mesh, request_.world_size));
    all = each(all, &PlanCandidate::replicate, replicas_of(mesh, request_.world_size, in_host));
    std::erase_if(all, [&](const PlanCandidate& one) { return !is_compatible(job_, one); });
    return all;
  }

  std::vector<PlanCandidate> candidates() {
    std::vector<PlanCandidate> all = sharings(/*that_may_fit=*/true);
    if (all.empty()) all = sharings(/*that_may_fit=*/false);
    return with_batches(each(all, &PlanCandidate::checkpointing, checkpointings_));
  }

  /// Lists the sharings of all meshes, without the sizes of batches. Throws the error of a run if none is possible.
  std::vector<PlanCandidate> sharings(bool that_may_fit) {
    std::vector<PlanCandidate> all;
    SampleRanks most;
    std::optional<Error> mistake;
    for (const PlanCandidate& mesh : meshes_) {
      if (plan_.batch.global_batch % groups_of(mesh) != 0) continue;
      for (const PlanCandidate& sharing : sharings_of(mesh)) {
        if (that_may_fit && !may_fit(sharing, request_.world_size)) continue;
        try {
          layouts_of(sharing);
        } catch (const Error& refused) {  // a run would refuse it as well
          if (!mistake) mistake = refused;
          continue;
        }
        most = {.tensor = std::max(most.tensor, mesh.tensor), .context = std::max(most.context, mesh.context)};
        all.push_back(sharing);
      }
    }
    if (all.empty() && mistake) throw Error(*mistake);
    activations_.expect(most);
    return all;
  }

  std::vector<PlanCandidate> with_batches(const std::vector<PlanCandidate>& candidates) const {
    std::vector<PlanCandidate> all;
    for (PlanCandidate one : candidates) {
      const int64_t share = plan_.batch.global_batch / groups_of(one);
      for (const int64_t micro_batch : divisors_of(share)) {
        one.micro_batch = micro_batch;
        one.accumulation = share / micro_batch;
        if (one.virtual_stages == 1 || one.accumulation % one.pipeline == 0) all.push_back(one);
      }
    }
    return all;
  }

  /// Returns whether fixed memory may fit if ranks shared all of it equally: the largest stage has at least the mean.
  bool may_fit(const PlanCandidate& sharing, int ranks) {
    if (has_own_degrees(sharing)) return true;
    if (!whole_) whole_ = layout_of({}, simulated(job_of(job_, {}), 1, 1, 0)).fixed;
    const int64_t parts = sharing.tensor * sharing.pipeline, shards = ranks / parts / sharing.replicate;
    const auto by = [&](bool is_shared) { return is_shared ? shards : 1; };
    const int64_t values = whole_->parameters + whole_->working_copy;
    return fits((values / by(sharing.shard == "parameters") + whole_->optimizer_state / by(sharing.shard != "none") +
                 whole_->gradients / by(sharing.shard == "gradients" || sharing.shard == "parameters")) /
                parts);
  }

  RankLayout layout_of(const PlanCandidate& candidate, RankContext context) const {
    return rank_layout(job_of(job_, candidate), datasets_, plan_, context);
  }

  /// Computes the layouts. Throws the errors of a run.
  StageLayouts layouts_among(int ranks, const PlanCandidate& candidate) const {
    const Job job = job_of(job_, candidate);
    const auto at = [&](int64_t rank) { return simulated(job, ranks, request_.rates.ranks_per_host, rank); };
    StageLayouts layouts{.first = layout_of(candidate, at(0)), .last = {}};
    if (candidate.pipeline > 1) layouts.last = layout_of(candidate, at(ranks - ranks / candidate.pipeline));
    return layouts;
  }

  const StageLayouts& layouts_of(const PlanCandidate& candidate) {
    const Sharing sharing = sharing_of(candidate);
    const auto found = layouts_.find(sharing);
    if (found != layouts_.end()) return found->second;
    return layouts_[sharing] = layouts_among(request_.world_size, candidate);
  }

  PlanRow memory_of(const PlanCandidate& candidate, const StageLayouts& layouts) {
    const auto memory = [&](const RankLayout& layout) {
      return RankMemory{.fixed = layout.fixed, .activations = activations_.bytes(candidate, layout)};
    };
    PlanRow row{.candidate = candidate, .memory = memory(layouts.first)};
    if (layouts.last) row.memory_of_last_stage = memory(*layouts.last);
    return row;
  }

  void add_time(PlanRow& row) {
    const PlanCandidate& candidate = row.candidate;
    if (candidate.pipeline > 1) {
      const PipelineWork work = pipeline_work_of(candidate);
      row.time = pipeline_times_.step_time(work, request_.rates);
      row.wire_bytes = static_cast<int64_t>(app::sent_bytes(work));
    } else {
      const StageLayouts& layouts = layouts_of(candidate);
      const StepWork work = work_of(candidate, layouts.first, layouts.first.parts.front());
      row.time = step_time(work, request_.rates);
      row.wire_bytes = static_cast<int64_t>(app::sent_bytes(work));
    }
    row.samples_per_second = static_cast<double>(plan_.batch.global_batch) / row.time.total();
    row.utilization = flops_ * row.samples_per_second / (request_.world_size * request_.rates.compute.value);
  }

  /// Computes the work of a part. Operations: the model's own count, 6 for each weight and token and 12 for each pair
  /// of tokens and channel of attention in a decoder, a third of it forward; less where weights are frozen; block
  /// checkpointing repeats the forward pass (Chen et al., arXiv:1604.06174). Ranks that share a sample have an equal
  /// share of them. Memory traffic of a pass: gradients are read and written once; packed weights are unpacked for each
  /// product; what selective checkpointing does not keep is read and written once.
  /// Memory traffic of an update: gradients are set to zero, and read for their norm and by the rule; values and state
  /// are read and written, the 16-bit copy is written.
  StepWork work_of(const PlanCandidate& candidate, const RankLayout& layout, const ModelPart& part) {
    StepWork work{.passes = candidate.accumulation,
                  .in_forward = layout.forward,
                  .in_backward = layout.backward,
                  .in_last_backward = layout.last_backward,
                  .after_update = layout.after_update};
    const bool is_whole = candidate.pipeline == 1;
    const bool repeats = candidate.checkpointing == "block";
    const double pass = (is_whole ? flops_ : part.flops / (3 * forward_share_)) *
                        static_cast<double>(candidate.micro_batch) /
                        static_cast<double>(candidate.tensor * candidate.context);
    work.forward_flops = pass * forward_share_;
    work.backward_flops = repeats ? pass : pass - work.forward_flops;
    LayerTraffic traffic = layer_traffic(candidate, traffic_, part, part.end == layout.units);
    work.in_forward_stalls = std::move(traffic.forward);
    work.in_backward_stalls = std::move(traffic.backward);
    int64_t bytes = 2 * layout.gradient_bytes + (repeats ? 3 : 2) * unpacked_bytes_ / candidate.pipeline;
    if (candidate.checkpointing == "selective") {
      PlanCandidate whole = candidate;
      whole.checkpointing = "none";
      // In a pipeline, the difference is that of all micro-batches that are held.
      const int64_t kept = activations_.bytes(whole, layout), left = activations_.bytes(candidate, layout);
      bytes += 2 * std::max<int64_t>(0, kept - left) / held_at_once(candidate, layout);
    }
    work.pass_bytes = static_cast<double>(bytes);
    work.update_bytes = static_cast<double>(3 * layout.fixed.gradients + 2 * layout.owned_bytes +
                                            2 * layout.fixed.optimizer_state + layout.fixed.working_copy);
    return work;
  }

  static int64_t held_at_once(const PlanCandidate& candidate, const RankLayout& layout) {
    if (candidate.pipeline == 1) return 1;
    return parallel::most_in_flight(shape_of(candidate), layout.stage);
  }

  static parallel::PipelineShape shape_of(const PlanCandidate& candidate) {
    return {.stages = candidate.pipeline, .parts = candidate.virtual_stages, .micro_batches = candidate.accumulation};
  }

  /// Computes the work of a pipeline. The first part of a stage includes what the stage does once in a step.
  PipelineWork pipeline_work_of(const PlanCandidate& candidate) {
    const StageLayouts& layouts = layouts_of(candidate);
    PipelineWork work{
        .shape = shape_of(candidate),
        .kinds = {},
        .kind_of_parts = {},
        .transfer = transfer_between_stages(candidate, traffic_, request_.world_size / candidate.pipeline),
        .of_ends = {}};
    std::vector<std::tuple<double, int64_t, bool, bool, bool>> known;
    const std::vector<ModelPart>& parts = layouts.first.parts;
    for (int64_t index = 0; index < std::ssize(parts); ++index) {
      const ModelPart& part = parts[static_cast<size_t>(index)];
      const bool is_of_last_stage = index % candidate.pipeline == candidate.pipeline - 1;
      const bool is_first_of_stage = index < candidate.pipeline;
      const std::tuple kind{part.flops, part.blocks, part.has_stem(), is_of_last_stage, is_first_of_stage};
      const auto found = std::ranges::find(known, kind);
      work.kind_of_parts.push_back(static_cast<size_t>(found - known.begin()));
      if (found != known.end()) continue;
      known.push_back(kind);
      work.kinds.push_back(work_of(candidate, is_of_last_stage ? *layouts.last : layouts.first, part));
      if (!is_first_of_stage) leave_out_what_comes_once(work.kinds.back());
    }
    if (const int64_t borrowed = layouts.last->fixed.borrowed; borrowed > 0) {  // values, and later their gradient
      work.of_ends.assign(2, {.kind = Collective::Kind::transfer,
                              .bytes = borrowed / 2,
                              .ranks = 2,
                              .stride = work.transfer.stride * (candidate.pipeline - 1)});
    }
    return work;
  }

  static void leave_out_what_comes_once(StepWork& work) {
    work.in_last_backward.clear();
    work.after_update.clear();
    work.pass_bytes = work.update_bytes = 0;
  }

  /// Returns the least power of two; 0: none.
  int64_t ranks_that_would_fit() {
    for (int ranks = 2; ranks <= kMostRanks; ranks *= 2) {
      if (ranks <= request_.world_size) continue;
      for (const PlanCandidate& mesh : meshes_among(ranks)) {
        if (ranks % mesh.ranks_of_a_sample() == 0 && would_fit(mesh, ranks)) return ranks;
      }
    }
    return 0;
  }

  /// Returns whether it fits with one sample in a micro-batch, and as much sharing and recomputation as possible.
  bool would_fit(const PlanCandidate& mesh, int ranks) {
    const bool is_own = has_own_degrees(mesh);
    const int64_t groups = ranks / mesh.ranks_of_a_sample();
    PlanCandidate candidate = mesh;
    for (const std::string& shard : app::shards_of(mesh, ranks)) {
      PlanCandidate sharing = mesh;
      sharing.shard = shard;
      if (is_compatible(job_, sharing)) candidate.shard = shard;
    }
    candidate.accumulation = std::max<int64_t>(1, plan_.batch.global_batch / groups);
    if (!is_own && (plan_.batch.global_batch % groups != 0 || !may_fit(candidate, ranks))) return false;
    activations_.expect({.tensor = mesh.tensor, .context = mesh.context});
    return std::ranges::any_of(checkpointings_, [&](const std::string& checkpointing) {
      candidate.checkpointing = checkpointing;
      try {
        return fits(memory_of(candidate, layouts_among(ranks, candidate)).bytes());
      } catch (const Error&) {  // a run would refuse it as well
        if (is_own) throw;
        return false;
      }
    });
  }

  const Job& job_;
  PlanRequest request_;  // of the present search
  PlanCandidate fixed_;  // degrees that the job sets
  JobDatasets datasets_;
  RankContext context_;
  PredictedActivations activations_;
  train::Plan plan_;
  double flops_ = 0;  // operations per sample, forward and backward
  double forward_share_ = 1.0 / 3;
  int64_t parameters_ = 0;
  int64_t unpacked_bytes_ = 0;  // read and written to unpack all packed weights once
  std::vector<std::string> checkpointings_;
  std::vector<PlanCandidate> meshes_;
  DecoderSizes sizes_;
  DecoderTraffic traffic_;
  std::optional<FixedMemory> whole_;  // memory of a rank alone
  std::map<Sharing, StageLayouts> layouts_;
  PipelineTimes pipeline_times_;
};

void refuse_what_is_not_predicted(const Job& job) {
  const auto& parallel = job.spec().parallel;
  if (can_scale(job)) return;
  for (const auto& [key, degree] : {std::pair("context", parallel.context), std::pair("tensor", parallel.tensor),
                                    std::pair("pipeline", parallel.pipeline)}) {
    if (degree == 1) continue;
    throw job.loaded.error(std::string("parallel.") + key,
                           "is predicted only for a model of type gpt without model.freeze",
                           std::string("--set parallel.") + key + "=1");
  }
}

/// Returns the job without the settings that the search tries whatever the job says.
Job without_searched(const Job& job) {
  JobSpec spec = job.spec();
  spec.parallel.shard = "none";
  spec.parallel.replicate = 1;
  spec.train.activation_checkpointing = spec.train.offload.activations ? "block" : "none";
  Job rest = job;
  rest.loaded = job.loaded.with(std::move(spec));
  return rest;
}

}  // namespace

const PlanRow& Plans::smallest() const {
  return *std::ranges::min_element(all, {}, [](const PlanRow& row) { return row.bytes(); });
}

double Plans::seconds_of(const PlanRow& row) const noexcept {
  if (steps == INT64_MAX) return max_seconds;
  const double seconds = static_cast<double>(steps) * row.time.total();
  return max_seconds > 0 ? std::min(seconds, max_seconds) : seconds;
}

std::vector<Plans> search_plans(const Job& job, const std::vector<PlanRequest>& requests) {
  check_compatibility(without_searched(job));
  refuse_what_is_not_predicted(job);
  PlanSearch search(job, requests.front());
  std::vector<Plans> plans;
  for (const PlanRequest& request : requests) plans.push_back(search.search(request));
  return plans;
}

}  // namespace gputrain::app
