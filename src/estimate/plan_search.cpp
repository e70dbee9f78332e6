#include "gputrain/estimate/plan_search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/estimate/predicted_activations.hpp"
#include "gputrain/optim/optimizer.hpp"

namespace gputrain::app {
namespace {

constexpr int kMostRanks = 1 << 20;

std::vector<int64_t> divisors_of(int64_t number) {
  std::vector<int64_t> small, large;
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    small.push_back(i);
    if (i != number / i) large.insert(large.begin(), number / i);
  }
  small.insert(small.end(), large.begin(), large.end());
  return small;
}

/// Each of `candidates` with each of `values`.
template <class Value>
std::vector<PlanCandidate> each(const std::vector<PlanCandidate>& candidates, Value PlanCandidate::* member,
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

/// Sharings that the job can have.
std::vector<std::string> shards_of(const JobSpec& spec, const models::Model& model, int world_size) {
  if (world_size == 1) return {"none"};
  std::vector<std::string> shards{"none", "optimizer", "gradients"};
  const bool has_whole_tensors = optim::takes_whole_tensors(spec.optimizer.type.name);
  if (!has_whole_tensors && model.announces_units()) shards.emplace_back("parameters");
  return shards;
}

std::vector<std::string> checkpointings_of(const models::Model& model) {
  std::vector<std::string> kinds{"none"};
  if (model.offers(nn::Recompute::selective)) kinds.emplace_back("selective");
  if (model.offers(nn::Recompute::block)) kinds.emplace_back("block");
  return kinds;
}

Job job_of(const Job& job, const PlanCandidate& candidate) {
  JobSpec spec = job.spec();
  spec.parallel.shard = candidate.shard;
  spec.parallel.replicate = candidate.replicate;
  spec.train.activation_checkpointing = candidate.checkpointing;
  Job said = job;
  said.loaded = job.loaded.with(std::move(spec));
  return said;
}

/// What of a candidate decides what ranks hold and send.
using Sharing = std::pair<std::string, int64_t>;
Sharing sharing_of(const PlanCandidate& candidate) { return {candidate.shard, candidate.replicate}; }

/// How many replicas ranks can be whose shards lie within hosts, or which have whole hosts.
std::vector<int64_t> replicas_of(int64_t ranks, int64_t ranks_per_host) {
  std::vector<int64_t> replicas{1};
  for (const int64_t one : divisors_of(ranks)) {
    const int64_t shards = ranks / one;
    if (one > 1 && shards > 1 && shards % ranks_per_host == 0) replicas.push_back(one);
  }
  return replicas;
}

RankContext first_of(const Job& job, int world_size, int64_t ranks_per_host) {
  const int each_host = static_cast<int>(std::min<int64_t>(ranks_per_host, world_size));
  return simulate_rank(job, {.rank = 0, .world_size = world_size, .local_rank = 0, .local_world_size = each_host},
                       std::make_shared<comm::CollectiveTraffic>());
}

/// Samples of a rank in each step.
int64_t share_of(const train::BatchPlan& batch, int world_size) {
  if (batch.global_batch % world_size == 0) return batch.global_batch / world_size;
  const int64_t fewer = batch.global_batch / world_size * world_size;
  throw Error(ExitCode::usage, {.what = fmt::format("a global batch of {} does not divide among {} equally",
                                                    counted(batch.global_batch, "sample"), counted(world_size, "rank")),
                                .where = "train.global_batch_size",
                                .hint = fmt::format("--set train.global_batch_size={}",
                                                    fewer > 0 ? fmt::format("{} or {}", fewer, fewer + world_size)
                                                              : fmt::format("{}", world_size))});
}

/// What all candidates have in common, and what was found of each way to share.
class PlanSearch {
 public:
  PlanSearch(const Job& job, const PlanRequest& request)
      : job_(job),
        request_(request),
        datasets_(open_datasets(job)),
        context_(first_of(job, request.world_size, request.rates.ranks_per_host)),
        plan_(plan_run(job.spec(), datasets_, context_)),
        share_(share_of(plan_.batch, request.world_size)),
        activations_(job, datasets_, context_, share_) {
    RankContext alone = first_of(job, 1, 1);
    const BuiltModel built = model_without_memory(job_of(job, {}), datasets_, alone);
    flops_ = built.model->flops_per_sample();
    if (flops_ == 0) flops_ = 6 * static_cast<double>(built.parameter_count);
    parameters_ = built.parameter_count;
    shards_ = shards_of(job.spec(), *built.model, request.world_size);
    has_replicas_ = !optim::takes_whole_tensors(job.spec().optimizer.type.name);
    checkpointings_ = checkpointings_of(*built.model);
  }

  Plans search() {
    Plans plans{.global_batch = plan_.batch.global_batch,
                .tokens_per_sample = datasets_.tokens_per_sample(),
                .parameters = parameters_};
    for (const PlanCandidate& candidate : candidates()) plans.all.push_back(row_of(candidate));
    plans.how_activations = activations_.text();
    std::ranges::copy_if(plans.all, std::back_inserter(plans.fitting),
                         [&](const PlanRow& row) { return fits(row.bytes()); });
    // Times are compared in steps of 1 %, which is finer than the model is right.
    const auto order = [](const PlanRow& row) {
      return std::pair(std::llround(std::log(row.time.total()) / std::log(1.01)), row.bytes());
    };
    std::ranges::stable_sort(plans.fitting, {}, order);
    if (plans.fitting.empty()) plans.ranks_that_would_fit = ranks_that_would_fit();
    return plans;
  }

 private:
  bool fits(int64_t bytes) const {
    return static_cast<double>(bytes) <= (1 - kKeptMemory) * static_cast<double>(request_.device_bytes);
  }

  std::vector<PlanCandidate> candidates() const {
    std::vector<PlanCandidate> all{PlanCandidate{}};
    all = each(all, &PlanCandidate::shard, shards_);
    if (has_replicas_)
      all = each(all, &PlanCandidate::replicate, replicas_of(request_.world_size, request_.rates.ranks_per_host));
    std::erase_if(all, [](const PlanCandidate& one) { return one.shard == "none" && one.replicate > 1; });
    all = each(all, &PlanCandidate::checkpointing, checkpointings_);
    all = each(all, &PlanCandidate::micro_batch, divisors_of(share_));
    for (PlanCandidate& one : all) one.accumulation = share_ / one.micro_batch;
    return all;
  }

  const RankLayout& layout_of(const PlanCandidate& candidate) {
    RankLayout& layout = layouts_[sharing_of(candidate)];
    if (layout.units > 0) return layout;
    const Job job = job_of(job_, candidate);
    RankContext context = first_of(job, request_.world_size, request_.rates.ranks_per_host);
    layout = rank_layout(job, datasets_, plan_, context);
    return layout;
  }

  PlanRow row_of(const PlanCandidate& candidate) {
    const RankLayout& layout = layout_of(candidate);
    PlanRow row{.candidate = candidate,
                .fixed = layout.fixed,
                .activations = activations_.bytes(job_of(job_, candidate), layout, candidate.micro_batch)};
    const StepWork work = work_of(candidate, layout);
    row.time = step_time(work, request_.rates);
    row.wire_bytes = sent_bytes(work);
    row.samples_per_second = static_cast<double>(plan_.batch.global_batch) / row.time.total();
    row.utilization = flops_ * row.samples_per_second / (request_.world_size * request_.rates.compute.value);
    return row;
  }

  /// Operations: the model's own count, 6 for each weight and token and 12 for each pair of tokens and channel of
  /// attention in a decoder, a third of it forward; block checkpointing computes the forward pass once more (Chen et
  /// al., arXiv:1604.06174). Memory traffic of a pass: gradients are read and written once; what selective
  /// checkpointing does not keep is read and written once. Of an update: gradients are set to zero, and read for their
  /// norm and by the rule; values and state are read and written, the 16-bit copy is written.
  StepWork work_of(const PlanCandidate& candidate, const RankLayout& layout) {
    StepWork work{.passes = candidate.accumulation,
                  .in_forward = layout.forward,
                  .in_backward = layout.backward,
                  .in_last_backward = layout.last_backward,
                  .after_update = layout.after_update};
    const double pass = flops_ * static_cast<double>(candidate.micro_batch);
    work.forward_flops = pass / 3;
    work.backward_flops = pass * (candidate.checkpointing == "block" ? 1 : 2.0 / 3);
    int64_t traffic = 2 * layout.gradient_bytes;
    if (candidate.checkpointing == "selective") {
      PlanCandidate whole = candidate;
      whole.checkpointing = "none";
      const int64_t kept = activations_.bytes(job_of(job_, whole), layout, candidate.micro_batch);
      const int64_t left = activations_.bytes(job_of(job_, candidate), layout, candidate.micro_batch);
      traffic += 2 * std::max<int64_t>(0, kept - left);
    }
    work.pass_bytes = static_cast<double>(traffic);
    work.update_bytes = static_cast<double>(3 * layout.fixed.gradients + 2 * layout.owned_bytes +
                                            2 * layout.fixed.optimizer_state + layout.fixed.working_copy);
    return work;
  }

  static int64_t sent_bytes(const StepWork& work) {
    double bytes = 0;
    const auto add = [&](const std::vector<Collective>& collectives, int64_t times) {
      for (const Collective& one : collectives) {
        const double rounds = one.kind == Collective::Kind::all_reduce ? 2 : 1;
        bytes += rounds * static_cast<double>(times * one.bytes) * static_cast<double>(one.ranks - 1) /
                 static_cast<double>(one.ranks);
      }
    };
    add(work.in_forward, work.passes);
    add(work.in_backward, work.passes);
    add(work.in_last_backward, 1);
    add(work.after_update, 1);
    return static_cast<int64_t>(bytes);
  }

  /// With one sample in a micro-batch, and the most that is shared and recomputed.
  int64_t ranks_that_would_fit() {
    for (int ranks = 2; ranks <= kMostRanks; ranks *= 2) {
      if (ranks <= request_.world_size) continue;
      RankContext more = first_of(job_, ranks, request_.rates.ranks_per_host);
      for (const std::string& checkpointing : checkpointings_) {
        const PlanCandidate candidate{.shard = shards_.back(), .checkpointing = checkpointing};
        const Job variant = job_of(job_, candidate);
        const RankLayout layout = rank_layout(variant, datasets_, plan_, more);
        if (fits(layout.fixed.total() + activations_.bytes(variant, layout, 1))) return ranks;
      }
    }
    return 0;
  }

  const Job& job_;
  const PlanRequest& request_;
  JobDatasets datasets_;
  RankContext context_;
  train::Plan plan_;
  int64_t share_;
  PredictedActivations activations_;
  bool has_replicas_ = true;
  double flops_ = 0;  // of a sample, forward and backward
  int64_t parameters_ = 0;
  std::vector<std::string> shards_, checkpointings_;
  std::map<Sharing, RankLayout> layouts_;  // by sharing_of()
};

}  // namespace

const PlanRow& Plans::smallest() const {
  return *std::ranges::min_element(all, {}, [](const PlanRow& row) { return row.bytes(); });
}

Plans search_plans(const Job& job, const PlanRequest& request) {
  if (job.spec().parallel.compress == "powersgd") {
    throw job.loaded.error("parallel.compress", "what powersgd sends and keeps is not predicted",
                           "--set parallel.compress=none, or bf16");
  }
  const auto& parallel = job.spec().parallel;
  for (const auto& [key, degree] : {std::pair("context", parallel.context), std::pair("tensor", parallel.tensor)}) {
    if (degree > 1)
      throw job.loaded.error(std::string("parallel.") + key, "is not predicted",
                             std::string("--set parallel.") + key + "=1");
  }
  return PlanSearch(job_of(job, {}), request).search();
}

std::string yaml_of(const PlanCandidate& candidate) {
  return fmt::format(
      "parallel: {{shard: {}{}}}\n"
      "train: {{micro_batch_size: {}, gradient_accumulation_steps: {}, activation_checkpointing: {}}}\n",
      candidate.shard, candidate.replicate > 1 ? fmt::format(", replicate: {}", candidate.replicate) : "",
      candidate.micro_batch, candidate.accumulation, candidate.checkpointing);
}

}  // namespace gputrain::app
