#include "gputrain/checkpoint/background_writer.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include <ATen/TensorUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include "gputrain/device/fault.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/device/thread.hpp"

namespace gputrain::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns whether a tensor is copied by memcpy on the background thread, because training needs the operators'
/// threads. The caller copies GPU memory, in stream order.
bool is_copied_by_bytes(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.is_non_overlapping_and_dense(); }

void copy_bytes(const at::Tensor& to, const at::Tensor& from) {
  std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

BackgroundWriter::BackgroundWriter(CheckpointStore store) : store_(std::move(store)) {}

BackgroundWriter::~BackgroundWriter() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BackgroundWriter::begin(const Snapshot& live, const std::vector<at::Tensor>& still) {
  const auto begin = Clock::now();
  wait();
  std::optional<Snapshot> copy;
  try {
    if (!thread_.joinable()) thread_ = device::start_thread("checkpoint", [this] { run(); });
    copy = copy_of(live, still);
  } catch (const std::exception& failure) {
    const auto shortage = device::shortage_of(failure);
    if (!shortage) throw;
    return give_up(live, *shortage);
  }
  {
    const std::lock_guard lock(mutex_);
    begun_ = std::move(copy);
    copying_ = true;
    stall_seconds_ = seconds_since(begin);
  }
  changed_.notify_all();
}

/// Frees the memory already allocated: training needs it more.
void BackgroundWriter::give_up(const Snapshot& live, const device::Shortage& shortage) {
  to_copy_.clear();
  if (const auto gpu = std::exchange(copying_from_, std::nullopt)) device::synchronize(*gpu);
  memory_.clear();
  staging_.release();
  const int64_t mebibytes = (shortage.requested_bytes + (1 << 20) - 1) >> 20;
  const Error failure(ExitCode::checkpoint,
                      {.what = "there is no memory for a copy of what is to be saved" +
                               (mebibytes > 0 ? ": " + std::to_string(mebibytes) + " MiB more cannot be had" : ""),
                       .where = (store_.folder() / folder_name(live.step)).string(),
                       .hint = "a smaller train.micro_batch_size or data.prefetch_factor leaves more of it"});
  store_.withdraw(live, failure.what());
  const std::lock_guard lock(mutex_);
  results_.push_back({.step = live.step, .bytes = live.bytes(), .failure = failure});
}

void BackgroundWriter::finish_copy() {
  std::unique_lock lock(mutex_);
  if (!copying_) return;
  const auto begin = Clock::now();
  changed_.wait(lock, [this] { return !copying_; });
  stall_seconds_ += seconds_since(begin);
}

BackgroundWriter::Result BackgroundWriter::save(const Snapshot& live) {
  const auto begin = Clock::now();
  wait();
  Result result = write(live);
  result.stall_seconds = seconds_since(begin);
  return result;
}

void BackgroundWriter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !begun_; });
}

std::vector<BackgroundWriter::Result> BackgroundWriter::take_results() {
  const std::lock_guard lock(mutex_);
  return std::exchange(results_, {});
}

void BackgroundWriter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return begun_.has_value() || closing_; });
    if (!begun_) return;
    lock.unlock();
    for (const auto& [to, from] : std::exchange(to_copy_, {})) copy_bytes(to, from);
    lock.lock();
    copying_ = false;
    changed_.notify_all();
    lock.unlock();
    Result result = write(*begun_);  // no other thread touches it before the reset
    lock.lock();
    result.stall_seconds = stall_seconds_;
    results_.push_back(std::move(result));
    begun_.reset();
    changed_.notify_all();
  }
}

BackgroundWriter::Result BackgroundWriter::write(const Snapshot& snapshot) {
  const auto begin = Clock::now();
  Result result{.step = snapshot.step, .bytes = snapshot.bytes()};
  double durable_seconds = 0;
  try {
    result.folder = store_.write(snapshot);
    durable_seconds = seconds_since(begin);
    if (snapshot.rank == 0) result.folder = store_.confirm(result.folder);
  } catch (const Error& error) {
    result.failure = error;
  } catch (const std::exception& error) {  // a failed save must not end training
    const std::string what = device::shortage_of(error) ? "not enough memory to write it" : error.what();
    const auto fault = device::fault_of(error);
    result.has_device_failed = fault.has_value();
    result.failure = fault ? *fault : Error(ExitCode::checkpoint, {.what = what, .where = store_.folder().string()});
  }
  const double seconds = seconds_since(begin);
  result.seconds = durable_seconds > 0 ? durable_seconds : seconds;
  result.verify_seconds = seconds - result.seconds;
  return result;
}

Snapshot BackgroundWriter::copy_of(const Snapshot& live, const std::vector<at::Tensor>& still) {
  const at::NoGradGuard no_grad;
  Snapshot copy = live;
  copying_from_.reset();
  if (memory_.empty()) staging_.expect(static_cast<int64_t>(live.bytes()));
  const auto take = [&](const std::string& file, NamedTensors& tensors) {
    for (auto& [name, tensor] : tensors) {
      const at::Tensor from = tensor.detach();
      tensor = kept_memory(file, name, from);
      const bool is_still =
          std::any_of(still.begin(), still.end(), [&](const auto& held) { return held.is_alias_of(from); });
      if (is_still && is_copied_by_bytes(from)) {
        to_copy_.emplace_back(tensor, from);
      } else {
        tensor.copy_(from, /*non_blocking=*/from.is_cuda());
        if (from.is_cuda()) copying_from_ = from.device();
      }
    }
  };
  for (auto& [part, tensors] : copy.files) take(part, tensors);
  for (Shard& shard : copy.shards) take(file_name(shard.part, shard.rank, shard.ranks), shard.tensors);
  if (copying_from_) device::synchronize(*copying_from_);  // once for all copies
  return copy;
}

/// Returns memory with the same element order as `like`, so that memcpy works.
at::Tensor BackgroundWriter::kept_memory(const std::string& file, const std::string& name, const at::Tensor& like) {
  at::Tensor& kept = memory_[{file, name}];
  const bool is_dense = like.is_non_overlapping_and_dense();
  const bool fits = kept.defined() && kept.sizes() == like.sizes() && kept.scalar_type() == like.scalar_type() &&
                    (!is_dense || kept.strides() == like.strides());
  if (fits) return kept;
  kept = at::Tensor();  // free it before the new allocation
  const std::vector<int64_t> strides = is_dense ? like.strides().vec() : at::detail::defaultStrides(like.sizes());
  kept = like.is_cuda() ? staging_.empty_strided(like.sizes(), strides, like.scalar_type())
                        : at::empty_strided(like.sizes(), strides, at::TensorOptions().dtype(like.scalar_type()));
  return kept;
}

}  // namespace gputrain::checkpoint
