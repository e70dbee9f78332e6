#include "gputrain/parallel/data_parallel.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "gputrain/core/error.hpp"

namespace gputrain::parallel {

std::vector<device::Range> plan_buckets(const device::Arena& arena, const BucketLimits& limits) {
  const auto element_bytes = static_cast<int64_t>(arena.values().itemsize());
  std::vector<device::Range> units = arena.unit_ranges(), buckets;
  std::reverse(units.begin(), units.end());
  for (const device::Range& unit : units) {
    const int64_t limit = buckets.size() <= 1 ? limits.first_bytes : limits.bytes;
    if (!buckets.empty() && (buckets.back().end - unit.begin) * element_bytes <= limit) {
      buckets.back().begin = unit.begin;
    } else {
      buckets.push_back(unit);
    }
  }
  return buckets;
}

std::vector<device::Range> plan_shards(const device::Arena& arena, int ranks) {
  const int64_t step = 128 / static_cast<int64_t>(arena.values().itemsize());
  const auto& segments = arena.segments();
  std::vector<device::Range> shards(static_cast<size_t>(ranks));
  int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t end = rank + 1 == ranks ? arena.values().numel() : arena.values().numel() * (rank + 1) / ranks / step * step;
    for (const device::Segment& segment : segments) {
      const bool is_cut = segment.offset < end && end < segment.offset + segment.padded;
      if (is_cut && !segment.is_row_major()) end = segment.offset;
    }
    end = std::max(begin, end);
    shards[static_cast<size_t>(rank)] = {.begin = begin, .end = end};
    begin = end;
  }
  return shards;
}

/// The buckets of one step. Hooks call it from the thread that runs backward, which the caller waits for.
class DataParallel::Reduction {
 public:
  Reduction(comm::Group& group, const device::Arena& arena, const std::vector<at::Tensor>& parameters,
            const BucketLimits& limits, std::vector<device::Range> owners)
      : group_(group), gradients_(arena.gradients()), values_(arena.values()), owners_(std::move(owners)) {
    for (const device::Range& range : plan_buckets(arena, limits)) {
      buckets_.push_back({.range = range});
    }
    for (const at::Tensor& parameter : parameters) hook(arena, parameter);
  }

  ~Reduction() {
    for (const at::Tensor& parameter : hooked_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }

  void prepare(bool synchronise) {
    wait_for_started();  // of a step that was given up
    synchronising_ = synchronise;
    next_ = 0;
    for (Bucket& bucket : buckets_) bucket.waiting = bucket.tensors;
  }

  void finish() {
    GPUTRAIN_ASSERT(synchronising_, "finish() follows prepare(true)");
    while (next_ < buckets_.size()) start_next();
    wait_for_started();
    synchronising_ = false;
  }

  void publish() {
    std::vector<comm::Pending> under_way;
    for (size_t rank = 0; rank < owners_.size(); ++rank) {
      if (owners_[rank].size() == 0) continue;
      under_way.push_back(group_.start_broadcast(values_.narrow(0, owners_[rank].begin, owners_[rank].size()),
                                                 static_cast<int>(rank), "values of rank " + std::to_string(rank)));
    }
    for (comm::Pending& pending : under_way) pending.wait();
  }

  bool shares() const noexcept { return !owners_.empty(); }
  void add_up(const at::Tensor& tensor) { group_.all_reduce_sum(tensor, "a part of every rank").wait(); }

  size_t buckets() const noexcept { return buckets_.size(); }
  size_t started() const noexcept { return next_; }

 private:
  struct Bucket {
    device::Range range;
    int64_t tensors = 0;  // hooked ones
    int64_t waiting = 0;  // of them, without a gradient yet
    std::vector<comm::Pending> under_way = {};
  };

  struct ReadyHook final : torch::autograd::PostAccumulateGradHook {
    ReadyHook(Reduction& to_tell, size_t of_bucket) : reduction(to_tell), bucket(of_bucket) {}
    void operator()(const at::Tensor&) override { reduction.gradient_is_there(bucket); }
    Reduction& reduction;
    size_t bucket;
  };

  void hook(const device::Arena& arena, const at::Tensor& parameter) {
    GPUTRAIN_ASSERT(parameter.is_alias_of(arena.values()), "data parallelism needs parameters that live in the arena");
    if (!parameter.requires_grad()) return;
    const int64_t offset = parameter.storage_offset();
    const auto bucket = std::find_if(buckets_.begin(), buckets_.end(), [offset](const Bucket& one) {
      return one.range.begin <= offset && offset < one.range.end;
    });
    const auto index = static_cast<size_t>(bucket - buckets_.begin());
    GPUTRAIN_ASSERT(torch::autograd::impl::post_acc_grad_hooks(parameter) == nullptr,
                    "the parameter's only hook is taken");
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<ReadyHook>(*this, index));
    hooked_.push_back(parameter);
    ++bucket->tensors;
  }

  void gradient_is_there(size_t index) {
    if (!synchronising_) return;
    GPUTRAIN_ASSERT(index >= next_,
                    "a gradient came after its bucket was sent: two backwards after one prepare(true)?");
    --buckets_[index].waiting;
    while (next_ < buckets_.size() && buckets_[next_].waiting <= 0) start_next();
  }

  void start_next() {
    Bucket& bucket = buckets_[next_];
    const std::string name = "gradient bucket " + std::to_string(next_);
    if (owners_.empty()) bucket.under_way.push_back(group_.all_reduce_sum(slice(bucket.range), name));
    for (size_t rank = 0; rank < owners_.size(); ++rank) {
      const device::Range piece{.begin = std::max(bucket.range.begin, owners_[rank].begin),
                                .end = std::min(bucket.range.end, owners_[rank].end)};
      if (piece.begin >= piece.end) continue;
      bucket.under_way.push_back(group_.reduce_sum(slice(piece), static_cast<int>(rank), name));
    }
    ++next_;
  }

  at::Tensor slice(const device::Range& range) const { return gradients_.narrow(0, range.begin, range.size()); }

  void wait_for_started() {
    for (Bucket& bucket : buckets_) {
      for (comm::Pending& pending : std::exchange(bucket.under_way, {})) pending.wait();
    }
  }

  comm::Group& group_;
  const at::Tensor gradients_, values_;  // of the arena
  const std::vector<device::Range> owners_;
  std::vector<Bucket> buckets_;
  std::vector<at::Tensor> hooked_;
  size_t next_ = 0;  // the bucket that starts next
  bool synchronising_ = false;
};

DataParallel::DataParallel(comm::ProcessGroups& groups, const device::Arena& arena,
                           const std::vector<at::Tensor>& parameters, const BucketLimits& limits,
                           std::vector<device::Range> owners) {
  if (groups.alone()) return;
  reduction_ = std::make_unique<Reduction>(groups.tensors(), arena, parameters, limits, std::move(owners));
}

DataParallel::~DataParallel() = default;

void DataParallel::prepare(bool synchronise) {
  if (reduction_) reduction_->prepare(synchronise);
}

void DataParallel::finish() {
  if (reduction_) reduction_->finish();
}

bool DataParallel::shares() const noexcept { return reduction_ && reduction_->shares(); }

void DataParallel::add_up(const at::Tensor& tensor) {
  if (reduction_) reduction_->add_up(tensor);
}

void DataParallel::publish() {
  if (reduction_) reduction_->publish();
}

int64_t DataParallel::buckets() const noexcept { return reduction_ ? static_cast<int64_t>(reduction_->buckets()) : 0; }

int64_t DataParallel::started() const noexcept { return reduction_ ? static_cast<int64_t>(reduction_->started()) : 0; }

}  // namespace gputrain::parallel
