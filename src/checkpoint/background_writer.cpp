#include "gputrain/checkpoint/background_writer.hpp"

#include <chrono>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "gputrain/core/signals.hpp"

namespace gputrain::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

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

void BackgroundWriter::begin(const Snapshot& live) {
  const auto begin = Clock::now();
  wait();
  Snapshot copy = copy_of(live);
  {
    const std::lock_guard lock(mutex_);
    begun_ = std::move(copy);
    stall_seconds_ = seconds_since(begin);
  }
  if (!thread_.joinable()) {
    const SignalsBlocked in_the_new_thread;
    thread_ = std::thread([this] { run(); });
  }
  changed_.notify_all();
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
    Result result = write(*begun_);  // nobody else touches it before it is reset
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
  try {
    store_.save(snapshot);
  } catch (const Error& error) {
    result.failure = error;
  } catch (const std::exception& error) {  // of memory, say: a save must not end a training run
    result.failure = Error(ExitCode::checkpoint, {.what = error.what(), .where = store_.folder().string()});
  }
  result.seconds = seconds_since(begin);
  return result;
}

Snapshot BackgroundWriter::copy_of(const Snapshot& live) {
  const at::NoGradGuard no_grad;
  Snapshot copy{.step = live.step, .files = {}, .state = live.state, .score = live.score, .synced_before = live.synced_before};
  for (const auto& [file, tensors] : live.files) {
    NamedTensors& copies = copy.files[file];
    for (const auto& [name, tensor] : tensors) {
      at::Tensor& kept = memory_[{file, name}];
      if (!kept.defined() || kept.sizes() != tensor.sizes() || kept.scalar_type() != tensor.scalar_type()) {
        kept = at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()).pinned_memory(tensor.is_cuda()));
      }
      kept.copy_(tensor.detach());
      copies.emplace_back(name, kept);
    }
  }
  return copy;
}

}  // namespace gputrain::checkpoint
