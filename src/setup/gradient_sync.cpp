#include "gputrain/setup/gradient_sync.hpp"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "gputrain/core/numbers.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

constexpr double kMebibyte = 1 << 20;
/// Least size to measure: below it, measuring costs more than it gains, as it sends several times as much.
constexpr int64_t kFewGradientBytes = int64_t{4} << 20;

void choose_buckets(GradientSync& gradient_sync, const JobSpec& spec, comm::ProcessGroups& groups,
                    const device::Arena& arena) {
  const int64_t gradient_bytes = arena.numel() * arena.element_bytes();
  gradient_sync.buckets = bucket_limits(spec.parallel);
  if (spec.parallel.bucket_cap_mb.value && !arena.keeps_owned_values_only()) return;
  if (!arena.parts().empty()) {
    gradient_sync.bucket_reason =
        arena.keeps_owned_values_only() ? "units of the model" : "auto: split equally among the ranks";
  } else if (gradient_bytes <= gradient_sync.buckets.first_bytes) {
    gradient_sync.bucket_reason = "auto: all of it";
  } else if (gradient_bytes <= kFewGradientBytes) {
    gradient_sync.bucket_reason = "auto: too few gradients to be worth measuring";
  } else if (groups.mesh().has_parts_of_model()) {  // they would disagree about what is worth measuring
    gradient_sync.bucket_reason = "auto: not measured, because ranks have parts of the model";
  } else if (spec.deterministic) {
    gradient_sync.bucket_reason = "auto: not measured, because deterministic is true";
  } else if (groups.is_simulated()) {
    gradient_sync.bucket_reason = "auto: a run measures its ranks' all-reduces";
  } else {
    const auto link = parallel::measure_link(groups, arena.options().device());
    gradient_sync.buckets.bytes = parallel::best_bucket_bytes(link, gradient_bytes);
    gradient_sync.is_measured = true;
    gradient_sync.bucket_reason = "auto: an all-reduce here takes " + monitor::significant(1e3 * link.latency_seconds) +
                                  " ms plus 1 s for " + monitor::bytes(link.bytes_per_second);
  }
}

const char* name_of(at::ScalarType type) { return type == at::kHalf ? "fp16" : "bf16"; }

/// Describes what is sent in fewer bytes than it has: gradients, and weights of which each rank owns a part.
std::string wire_text(const GradientSync& gradient_sync, const device::Arena& arena) {
  std::string text;
  if (gradient_sync.wire_type) text += std::string(", gradients as ") + name_of(*gradient_sync.wire_type);
  for (const device::GatheredPart& part : arena.gathered_parts())
    if (part.copy.defined()) return text + ", weights as " + name_of(part.copy.scalar_type());
  return text;
}

}  // namespace

device::JoinLimits bucket_limits(const train::ParallelSpec& spec) {
  device::JoinLimits limits;
  if (const auto& megabytes = spec.bucket_cap_mb.value) limits.bytes = std::llround(*megabytes * kMebibyte);
  return limits;
}

parallel::ReducerOptions GradientSync::options(const std::vector<device::Shard>& owners,
                                               parallel::ShardedParameters* sharded) const {
  return {.buckets = buckets, .owners = owners, .wire_type = wire_type, .parameters = sharded};
}

void GradientSync::note(nlohmann::json& state) const {
  if (is_measured) state["bucket_bytes"] = buckets.bytes;
}

void GradientSync::restore(const checkpoint::Checkpoint& from, const comm::ProcessGroups& groups) {
  const auto& saved = from.state();
  const bool same_ranks = saved.at("world_size").get<int>() == groups.world_size();
  if (is_measured && same_ranks && saved.contains("bucket_bytes")) {
    buckets.bytes = std::max<int64_t>(1, saved.at("bucket_bytes").get<int64_t>());
    bucket_reason = "auto: as in the checkpoint";
  }
}

GradientSync plan_gradient_sync(const JobSpec& spec, comm::ProcessGroups& groups, const device::Arena& arena) {
  GradientSync gradient_sync;
  if (groups.alone()) return gradient_sync;
  choose_buckets(gradient_sync, spec, groups, arena);
  const std::string& compress = spec.parallel.compress;
  if (compress == "fp16") gradient_sync.wire_type = at::kHalf;
  if (compress == "bf16") gradient_sync.wire_type = at::kBFloat16;
  return gradient_sync;
}

std::string describe(const GradientSync& gradient_sync, const device::Arena& arena,
                     const parallel::GradientTraffic& one_step) {
  std::string text = monitor::bytes(one_step.bytes) + " a step";
  if (one_step.bytes != one_step.full_bytes) {
    text += " instead of " + monitor::bytes(one_step.full_bytes) + wire_text(gradient_sync, arena);
  }
  const auto buckets = std::ssize(parallel::plan_buckets(arena, gradient_sync.buckets));
  const bool has_size = buckets > 1 && !arena.keeps_owned_values_only();
  text += "  " + counted(buckets, "bucket") + (has_size ? " of " + monitor::bytes(gradient_sync.buckets.bytes) : "");
  return text + (gradient_sync.bucket_reason.empty() ? "" : " (" + gradient_sync.bucket_reason + ")");
}

}  // namespace gputrain::app
