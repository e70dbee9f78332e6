#include "gputrain/parallel/data_parallel.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "gputrain/core/error.hpp"
#include "gputrain/parallel/sharded_parameters.hpp"

namespace gputrain::parallel {
namespace {

constexpr size_t kMostUnderWay = 2;  // buckets in flight, if they take memory while they are

device::Range overlap(const device::Range& a, const device::Range& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {.begin = begin, .end = std::max(begin, std::min(a.end, b.end))};
}

/// Returns the part of `flat`, which holds the elements of `of`, that is `part`.
at::Tensor slice(const at::Tensor& flat, const device::Range& of, const device::Range& part) {
  return flat.narrow(0, part.begin - of.begin, part.size());
}

std::string name_of(size_t index) { return "gradient bucket " + std::to_string(index); }

}  // namespace

GradientTraffic traffic_of_step(const device::Arena& arena, const ReducerOptions& options, const comm::Mesh& mesh,
                                int64_t passes) {
  const auto gradient = arena.numel() * arena.element_bytes();
  int64_t sent = gradient;
  if (options.wire_type) sent = arena.numel() * static_cast<int64_t>(at::elementSize(*options.wire_type));
  int64_t back = options.owners.empty() ? sent : gradient, full_back = gradient;  // the sum, or values
  const int64_t times = arena.keeps_owned_gradients_only() ? passes : 1;
  if (arena.keeps_owned_values_only()) {
    const auto& frozen = arena.frozen_parts();
    const int64_t first_trained = arena.gathered_parts().back().unit,
                  last = std::max(arena.gathered_parts().front().unit, frozen.empty() ? 0 : frozen.back().unit);
    // Twice in each pass. Once for the last unit, which stays, and for units before the first trained one.
    const auto gathers = [&](int64_t unit) { return (unit == last || unit < first_trained ? 1 : 2) * passes; };
    back = full_back = 0;
    for (const device::GatheredPart& part : arena.gathered_parts()) {
      back += gathers(part.unit) * static_cast<int64_t>(part.read().nbytes());
      full_back += gathers(part.unit) * part.range.size() * arena.element_bytes();
    }
    for (const device::FrozenPart& part : frozen) {
      const int64_t bytes = gathers(part.unit) * static_cast<int64_t>(part.values.nbytes());
      back += bytes;
      full_back += bytes;
    }
  }
  const int64_t shards = mesh.shards(), replicas = mesh.replicas;
  const auto share = [&](int64_t bytes) { return bytes * (shards - 1) / shards; };
  const auto across = [&](int64_t bytes) { return 2 * bytes / shards * (replicas - 1) / replicas; };
  return {.bytes = share(times * sent + back) + across(sent),
          .full_bytes = share(times * gradient + full_back) + across(gradient)};
}

/// A hook that runs when backward is done with a parameter, also if an operator added its gradient to .grad directly
/// and there is none to accumulate. Hooks run in the thread that runs backward; the caller waits for that thread.
struct DataParallel::ReadyHook final : torch::autograd::FunctionPostHook {
  ReadyHook(DataParallel& to_tell, at::Tensor of_parameter, const device::Segment& of_segment, size_t of_bucket)
      : all(to_tell), parameter(std::move(of_parameter)), segment(of_segment), bucket(of_bucket) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& results,
                                            const torch::autograd::variable_list&) override {
    if (all.shares_gradients()) all.take(parameter, segment, all.buckets_[bucket]);
    all.gradient_is_there(bucket);
    return results;
  }
  DataParallel& all;
  const at::Tensor parameter;
  const device::Segment& segment;  // owned by the arena
  size_t bucket;
};

DataParallel::DataParallel(comm::ProcessGroups& groups, const device::Arena& arena,
                           const std::vector<at::Tensor>& parameters, ReducerOptions options)
    : group_(groups.shards()),
      replicas_(groups.replicas()),
      layers_(groups.layers()),
      stages_(groups.stages()),
      arena_(arena),
      options_(std::move(options)) {
  if (groups.alone()) {
    options_.owners.clear();
    return;
  }
  for (const device::Range& range : plan_buckets(arena, options_.buckets)) {
    buckets_.push_back({.range = range});
    Bucket& bucket = buckets_.back();
    if (!shares_gradients()) bucket.gradient = arena.gradients().narrow(0, range.begin, range.size());
  }
  // One element in the gradients' type: a product with 16-bit values is computed in that type, in one pass.
  if (options_.wire_type) {
    ranks_ = at::full({1}, group_.size(), arena.options());
    all_ranks_ = at::full({1}, int64_t{group_.size()} * replicas_.size(), arena.options());
  }
  for (const at::Tensor& parameter : parameters) hook(parameter);
}

DataParallel::~DataParallel() {
  for (const auto& [accumulator, hook] : hooked_) accumulator->del_post_hook(hook);
}

void DataParallel::all_reduce_squares(const at::Tensor& sum) {
  const auto ranks = static_cast<double>(layers_.size());
  if (ranks > 1) {
    // Gradients that every rank of the layers has count once.
    const bool is_owned = arena_.keeps_owned_gradients_only();
    for (const device::Piece& piece : arena_.owned()) {
      for (const device::Segment& segment : arena_.segments()) {
        const device::Range mine = overlap(piece.range, {segment.offset, segment.offset + segment.numel});
        if (segment.split || mine.size() == 0) continue;
        const int64_t at = is_owned ? piece.at + mine.begin - piece.range.begin : mine.begin;
        const at::Tensor gradient = arena_.kept_gradients().narrow(0, at, mine.size());
        sum.sub_(gradient.to(at::kDouble).square().sum(), 1 - 1 / ranks);
      }
    }
  }
  if (shares()) group_.all_reduce_sum(sum, "squares of gradients").wait();
  layers_.all_reduce_sum(sum, "squares of gradients").wait();
  // In the order of the stages: an all-reduce may add up in another order at each place, and replicas would drift
  // apart.
  if (stages_.size() > 1) sum.copy_(stages_.all_gather(sum, "squares of gradients").sum());
}

void DataParallel::prepare(bool is_last) {
  abandon();  // collectives of a step that was given up
  synchronising_ = !buckets_.empty() && (is_last || shares_gradients());
  is_last_ = is_last;
  expects_ = true;
  next_ = 0;
  for (Bucket& bucket : buckets_) bucket.waiting = bucket.tensors;
}

void DataParallel::finish() {
  if (!synchronising_) return;
  const at::NoGradGuard no_grad;
  while (next_ < buckets_.size()) start_next();
  for (Bucket& bucket : buckets_) complete(bucket);
  for (Bucket& bucket : buckets_) complete_across(bucket);
  synchronising_ = false;
}

void DataParallel::abandon() {
  for (Bucket& bucket : buckets_) {
    for (comm::Pending& pending : std::exchange(bucket.under_way, {})) pending.wait();
    bucket.sent.reset();
    bucket.under_way_across.wait();
    bucket.across.reset();
    if (shares_gradients()) bucket.gradient.reset();
  }
  complete_gathering();
}

void DataParallel::all_gather_values() {
  if (!shares()) return;
  if (options_.parameters != nullptr) return options_.parameters->release_all();
  const device::Range all{.begin = 0, .end = arena_.numel()};
  if (splits_equally()) {
    for (size_t index = buckets_.size(); index-- > 0;) {  // the first unit is needed first
      const device::Range& part = buckets_[index].range;
      const at::Tensor values = slice(arena_.values(), all, part);
      const at::Tensor mine = values.chunk(group_.size())[static_cast<size_t>(group_.rank())];
      gathering_.push_back(group_.all_gather_into(values, mine, "values of bucket " + std::to_string(index)));
    }
  } else {
    for (size_t rank = 0; rank < options_.owners.size(); ++rank) {
      for (const device::Range& owned : options_.owners[rank]) {
        if (owned.size() == 0) continue;
        gathering_.push_back(group_.start_broadcast(slice(arena_.values(), all, owned), static_cast<int>(rank),
                                                    "values of rank " + std::to_string(rank)));
      }
    }
  }
  complete_gathering();
}

void DataParallel::hook(const at::Tensor& parameter) {
  if (!parameter.requires_grad()) return;
  const device::Segment& segment = arena_.segment_of(parameter);
  const auto bucket = std::find_if(buckets_.begin(), buckets_.end(), [&](const Bucket& one) {
    return one.range.begin <= segment.offset && segment.offset < one.range.end;
  });
  // Keep the accumulator alive: a parameter has only a weak reference to it.
  const auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  const auto hook = accumulator->add_post_hook(
      std::make_unique<ReadyHook>(*this, parameter, segment, static_cast<size_t>(bucket - buckets_.begin())));
  hooked_.emplace_back(accumulator, hook);
  ++bucket->tensors;
}

/// Moves a parameter's .grad into its bucket.
void DataParallel::take(const at::Tensor& parameter, const device::Segment& segment, Bucket& bucket) {
  const at::NoGradGuard no_grad;
  give_memory(bucket);
  if (!parameter.grad().defined()) return;
  const at::Tensor place =
      bucket.gradient.as_strided(segment.sizes, segment.strides, segment.offset - bucket.range.begin);
  place.copy_(parameter.mutable_grad());
  parameter.mutable_grad().reset();
}

void DataParallel::give_memory(Bucket& bucket) {
  if (!bucket.gradient.defined()) bucket.gradient = at::zeros({bucket.range.size()}, arena_.options());
}

void DataParallel::gradient_is_there(size_t index) {
  if (!synchronising_ || !expects_) return;
  GPUTRAIN_ASSERT(index >= next_, "a gradient came after its bucket was sent: two backwards after one prepare()?");
  if (--buckets_[index].waiting == 0 && options_.parameters != nullptr) options_.parameters->complete(index);
  while (next_ < buckets_.size() && buckets_[next_].waiting <= 0) start_next();
}

void DataParallel::start_next() {
  const size_t index = next_++;
  Bucket& bucket = buckets_[index];
  if (shares_gradients()) give_memory(bucket);
  if (shares() && index >= kMostUnderWay) complete(buckets_[index - kMostUnderWay]);
  send(bucket, name_of(index));
}

void DataParallel::send(Bucket& bucket, const std::string& name) {
  bucket.sent = bucket.gradient;
  if (options_.wire_type) {  // one pass over the gradient: divides in its type, then rounds
    bucket.sent = at::empty({bucket.gradient.numel()}, bucket.gradient.options().dtype(*options_.wire_type));
    at::div_out(bucket.sent, bucket.gradient, ranks_);
  }
  if (shares_gradients()) bucket.gradient.reset();
  if (!shares()) {
    bucket.under_way.push_back(group_.all_reduce_sum(bucket.sent, name));
  } else if (splits_equally()) {
    const at::Tensor mine = bucket.sent.chunk(group_.size())[static_cast<size_t>(group_.rank())];
    bucket.under_way.push_back(group_.reduce_scatter_sum(bucket.sent, mine, name));
  } else {
    for (size_t rank = 0; rank < options_.owners.size(); ++rank) {
      for (const device::Range& owned : options_.owners[rank]) {
        const device::Range piece = overlap(bucket.range, owned);
        if (piece.size() == 0) continue;
        const at::Tensor sent = slice(bucket.sent, bucket.range, piece);
        bucket.under_way.push_back(group_.reduce_sum(sent, static_cast<int>(rank), name));
      }
    }
  }
}

void DataParallel::complete_gathering() {
  for (comm::Pending& pending : std::exchange(gathering_, {})) pending.wait();
}

/// Stores the sum where it belongs; does nothing if that was done before.
void DataParallel::complete(Bucket& bucket) {
  for (comm::Pending& pending : std::exchange(bucket.under_way, {})) pending.wait();
  const at::Tensor sent = std::exchange(bucket.sent, {});
  if (!sent.defined()) return;
  if (!shares()) {
    if (options_.wire_type) at::mul_out(bucket.gradient, sent, ranks_);
    return;
  }
  for (const device::Piece& owned : arena_.owned()) {
    const device::Range mine = overlap(bucket.range, owned.range);
    if (mine.size() == 0) continue;
    at::Tensor sum = slice(sent, bucket.range, mine);
    if (shares_gradients()) {
      if (options_.wire_type) sum = at::mul(sum, ranks_);
      arena_.owned_gradients().narrow(0, owned.at + mine.begin - owned.range.begin, mine.size()).add_(sum);
    } else if (options_.wire_type) {
      at::Tensor place = slice(bucket.gradient, bucket.range, mine);
      at::mul_out(place, sum, ranks_);
    }
  }
  if (is_last_ && replicas_.size() > 1) send_across(bucket);
}

/// Returns this rank's part of a bucket that is split equally, in the arena's gradients or the bucket's.
at::Tensor DataParallel::own_sum(const Bucket& bucket) const {
  const auto owned = std::ranges::find_if(
      arena_.owned(), [&](const device::Piece& piece) { return overlap(bucket.range, piece.range).size() > 0; });
  const device::Range mine = overlap(bucket.range, owned->range);
  if (!shares_gradients()) return slice(bucket.gradient, bucket.range, mine);
  return arena_.owned_gradients().narrow(0, owned->at + mine.begin - owned->range.begin, mine.size());
}

/// Adds up the sums of the replicas' micro-batches, which are complete.
void DataParallel::send_across(Bucket& bucket) {
  bucket.across = own_sum(bucket);
  if (options_.wire_type) {
    const at::Tensor sum = bucket.across;
    bucket.across = at::empty({sum.numel()}, sum.options().dtype(*options_.wire_type));
    at::div_out(bucket.across, sum, all_ranks_);
  }
  bucket.under_way_across =
      replicas_.all_reduce_sum(bucket.across, name_of(static_cast<size_t>(&bucket - buckets_.data())));
}

void DataParallel::complete_across(Bucket& bucket) {
  bucket.under_way_across.wait();
  const at::Tensor sum = std::exchange(bucket.across, {});
  if (!sum.defined() || !options_.wire_type) return;
  at::Tensor place = own_sum(bucket);
  at::mul_out(place, sum, all_ranks_);
}

}  // namespace gputrain::parallel
