#include "gputrain/estimate/rank_layout.hpp"

#include <algorithm>
#include <utility>

#include "gputrain/parallel/buckets.hpp"
#include "gputrain/setup/gradient_sync.hpp"

namespace gputrain::app {
namespace {

using Kind = Collective::Kind;

/// Bucket of gradients, in the order in which the backward pass fills them.
struct SentBucket {
  int64_t begun = 0, complete = 0;  // units whose backward pass gives its first and its last gradient
  int64_t bytes = 0;                // size of its gradients
  int64_t sent = 0;                 // size of what is sent
  int64_t received = 0;             // size of a CPU's separate buffer for received data
  int64_t largest = 0;              // bytes of its largest parameter
};

std::vector<SentBucket> buckets_of(const device::Arena& arena, const GradientSync& sync, int64_t ranks, bool shares) {
  const int64_t element = arena.element_bytes();
  const int64_t on_wire = sync.wire_type ? static_cast<int64_t>(at::elementSize(*sync.wire_type)) : element;
  std::vector<SentBucket> buckets;
  auto segment = arena.segments().rbegin();
  for (const device::Range& range : parallel::plan_buckets(arena, sync.buckets)) {
    SentBucket bucket{.begun = segment->unit, .bytes = range.size() * element, .sent = range.size() * on_wire};
    for (; segment != arena.segments().rend() && segment->offset >= range.begin; ++segment) {
      bucket.complete = segment->unit;
      bucket.largest = std::max(bucket.largest, segment->numel * element);
    }
    if (shares) bucket.received = ranks == 2 ? bucket.sent / 2 : bucket.sent;
    buckets.push_back(bucket);
  }
  return buckets;
}

/// Returns whether the last unit has no matrix of its own: a tied head reads the first unit's.
bool has_tied_head(const device::Arena& arena) {
  const auto& segments = arena.segments();
  return std::ranges::none_of(segments, [&](const device::Segment& one) {
    return one.unit == segments.back().unit && one.role == device::Role::weight && one.sizes.size() == 2;
  });
}

/// Returns the bytes of weights that have memory while a unit's backward pass runs: its own, those of the unit before,
/// which are gathered already, and what it borrows.
int64_t gathered_bytes(const device::Arena& arena, int64_t unit) {
  const bool borrows = unit == arena.segments().back().unit && has_tied_head(arena);
  int64_t bytes = 0;
  for (const device::GatheredPart& part : arena.gathered_parts()) {
    if (part.unit == unit || part.unit == unit - 1 || (borrows && part.unit == 0))
      bytes += static_cast<int64_t>(part.read().nbytes());
  }
  return bytes;
}

/// Lists moments as in DataParallel: at most two buckets are being sent; gradients that only owners keep fill a third.
std::vector<BackwardMoment> moments_of(const device::Arena& arena, const std::vector<SentBucket>& buckets, bool shares,
                                       bool is_narrower) {
  const bool owns_gradients = arena.keeps_owned_gradients_only();
  const auto under_way = [&](const SentBucket& one) {
    return (owns_gradients || is_narrower ? one.sent : 0) + one.received;
  };
  std::vector<BackwardMoment> moments;
  int64_t all_sent = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const auto before = [&](size_t back) { return i >= back ? under_way(buckets[i - back]) : 0; };
    all_sent += under_way(buckets[i]);
    const auto add = [&](int64_t unit, int64_t bytes) {
      moments.push_back({.unit = unit, .bytes = bytes + gathered_bytes(arena, unit)});
    };
    if (owns_gradients) add(buckets[i].begun, buckets[i].bytes + buckets[i].largest + before(1) + before(2));
    // The unit has freed its activations. Without shards, no bucket is freed before the last.
    add(buckets[i].complete - 1, shares ? under_way(buckets[i]) + before(1) : all_sent);
  }
  return moments;
}

/// Gives the arena the largest share of all ranks. If parts are split equally, all have the same.
void own_most(BuiltModel& built) {
  if (built.owners.empty()) return;
  const auto owned = [](const device::Shard& shard) {
    int64_t numel = 0;
    for (const device::Range& range : shard) numel += range.size();
    return numel;
  };
  built.arena->own(*std::ranges::max_element(built.owners, {}, owned));
}

void add_collectives(RankLayout& layout, const device::Arena& arena, const std::vector<SentBucket>& buckets,
                     bool shares, const comm::Mesh& mesh) {
  const int64_t ranks = mesh.shards(), cell = mesh.tensor;
  if (mesh.cells() == 1) return;
  for (const SentBucket& bucket : buckets) {
    const Collective sum{
        .kind = shares ? Kind::reduce_scatter : Kind::all_reduce, .bytes = bucket.sent, .ranks = ranks, .stride = cell};
    (layout.shares_gradients ? layout.backward : layout.last_backward).push_back(sum);
    if (mesh.replicas > 1) {
      layout.last_backward.push_back(
          {.kind = Kind::all_reduce, .bytes = bucket.sent / ranks, .ranks = mesh.replicas, .stride = ranks * cell});
    }
    if (shares && !arena.keeps_owned_values_only())
      layout.after_update.push_back({.kind = Kind::all_gather, .bytes = bucket.bytes, .ranks = ranks, .stride = cell});
  }
  if (!arena.keeps_owned_values_only()) return;
  const int64_t last = arena.gathered_parts().front().unit;  // unit that is kept from the forward to the backward pass
  std::vector<Collective> again;
  for (const device::GatheredPart& part : arena.gathered_parts()) {
    const Collective gather{
        .kind = Kind::all_gather, .bytes = static_cast<int64_t>(part.read().nbytes()), .ranks = ranks, .stride = cell};
    layout.forward.insert(layout.forward.begin(), gather);
    if (part.unit != last) again.push_back(gather);
  }
  layout.backward.insert(layout.backward.begin(), again.begin(), again.end());
}

/// Returns the parts that stages have; without a pipeline, the whole model.
std::vector<ModelPart> parts_of(const BuiltModel& built) {
  const auto units = static_cast<int64_t>(built.model->units().size());
  if (!built.pipeline) return {{.end = units, .blocks = units - 2, .flops = built.model->flops_per_sample()}};
  const parallel::PassTimes costs = built.pipeline->costs();
  std::vector<ModelPart> parts;
  for (int64_t part = 0; part < std::ssize(costs); ++part) {
    const int64_t begin = built.pipeline->begin_of(part), end = built.pipeline->end_of(part);
    parts.push_back({.begin = begin,
                     .end = end,
                     .blocks = std::max<int64_t>(0, std::min(end, units - 1) - std::max<int64_t>(1, begin)),
                     .flops = costs[static_cast<size_t>(part)]});
  }
  return parts;
}

}  // namespace

RankLayout rank_layout(const Job& job, const JobDatasets& datasets, const train::Plan& plan, RankContext& context) {
  const comm::Mesh& mesh = context.groups.mesh();
  const int64_t ranks = mesh.shards();
  BuiltModel built = model_without_memory(job, datasets, context);
  own_most(built);
  const device::Arena& arena = *built.arena;
  const GradientSync sync = plan_gradient_sync(job.spec(), context.groups, arena);
  const bool shares = !built.owners.empty();
  RankLayout layout{.fixed = fixed_memory(built, build_optimizer_stack(job, context, plan, built)),
                    .moments = {},
                    .units = std::ssize(built.model->units()),
                    .stage = mesh.stage_of(context.rank()),
                    .parts = parts_of(built),
                    .shares_gradients = arena.keeps_owned_gradients_only(),
                    .owned_bytes = arena.owned_numel() * arena.element_bytes(),
                    .gradient_bytes = arena.numel() * arena.element_bytes()};
  const auto buckets = ranks > 1 ? buckets_of(arena, sync, ranks, shares) : std::vector<SentBucket>();
  layout.moments = moments_of(arena, buckets, shares, sync.wire_type.has_value());
  for (const device::Segment& segment : arena.segments()) {
    if (segment.role == device::Role::embedding || segment.unit == arena.segments().back().unit)
      layout.largest_of_head = std::max(layout.largest_of_head, segment.numel * arena.element_bytes());
  }
  add_collectives(layout, arena, buckets, shares, mesh);
  return layout;
}

}  // namespace gputrain::app
