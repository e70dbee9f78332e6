#include "batch_ring.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/signals.hpp"

namespace gputrain::data {
namespace {

constexpr size_t kChunkBytes = 64 << 10;

int64_t rows_per_chunk(const RowReader& reader, int workers) {
  const auto bytes = std::max<size_t>(1, reader.dataset().layout().bytes());
  const int64_t fair = reader.plan().most_rows() / workers;
  return std::clamp(static_cast<int64_t>(kChunkBytes / bytes), int64_t{1}, std::max(int64_t{1}, fair));
}

}  // namespace

BatchRing::BatchRing(const RowReader& reader, const ReadAhead& options)
    : reader_(reader),
      options_(options),
      chunk_rows_(rows_per_chunk(reader, options.workers)),
      pool_(reader.dataset().layout(), reader.plan().most_rows(), options.pinned),
      slots_(static_cast<size_t>(std::max<int64_t>(1, std::min(options.slots, options.end)))) {
  for (int64_t batch = 0; batch < std::ssize(slots_); ++batch) {
    Slot& slot = slot_of(batch);
    slot.buffers = pool_.get();
    slot.to = slot.buffers.memory();
    slot.rows_left = rows_of(batch);
  }
  const SignalsBlocked blocked;
  workers_.reserve(static_cast<size_t>(options.workers));
  try {
    for (int i = 0; i < options.workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    if (workers_.empty())
      throw Error(ExitCode::environment, {.what = "cannot start a thread for reading data",
                                          .hint = "raise the process limit (ulimit -u), or set data.num_workers: 0"});
  }
}

BatchRing::~BatchRing() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool BatchRing::has_work() const {
  return claim_batch_ < next_batch_ + std::ssize(slots_) && claim_batch_ < options_.end;
}

BatchRing::Chunk BatchRing::claim() {
  const int64_t rows = rows_of(claim_batch_);
  const Chunk chunk{claim_batch_, claim_row_, std::min(rows, claim_row_ + chunk_rows_)};
  claim_row_ = chunk.end;
  if (claim_row_ == rows) {
    ++claim_batch_;
    claim_row_ = 0;
  }
  return chunk;
}

void BatchRing::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stop_ || has_work(); });
    if (stop_) return;
    const Chunk chunk = claim();
    const BatchMemory to = slot_of(chunk.batch).to;
    lock.unlock();
    ReadOutcome outcome = reader_.read(chunk.batch, chunk.begin, chunk.end, to, stop_);
    lock.lock();
    finish(chunk, std::move(outcome), lock);
  }
}

void BatchRing::finish(const Chunk& chunk, ReadOutcome outcome, std::unique_lock<std::mutex>& lock) {
  Slot& slot = slot_of(chunk.batch);
  slot.outcome.add(std::move(outcome));
  slot.rows_left -= chunk.end - chunk.begin;
  if (slot.rows_left > 0) return;
  if (reader_.mixes()) {
    const BatchMemory to = slot.to;
    lock.unlock();  // nobody else uses the slot until it is ready
    reader_.complete(chunk.batch, to);
    lock.lock();
  }
  slot.is_ready = true;
  if (chunk.batch == next_batch_) ready_.notify_one();
}

void BatchRing::wait_until_ready(std::unique_lock<std::mutex>& lock) {
  const Slot& slot = slot_of(next_batch_);
  const auto patience = std::chrono::duration<double>(options_.timeout_seconds);
  const auto is_ready = [&slot] { return slot.is_ready; };
  if (!has_given_up_ && ready_.wait_for(lock, patience, is_ready)) return;
  has_given_up_ = stop_ = true;  // workers may still finish a read; nobody uses the result
  for (std::thread& worker : workers_) worker.detach();
  workers_.clear();
  throw Error(ExitCode::restart, {.what = "no batch within " + std::to_string(static_cast<int64_t>(patience.count())) +
                                          " seconds; the storage of the data does not respond"});
}

FilledBatch BatchRing::next() {
  GPUTRAIN_ASSERT(next_batch_ < options_.end, "asked for data past the announced end");
  std::unique_lock lock(mutex_);
  wait_until_ready(lock);
  Slot& slot = slot_of(next_batch_);
  if (slot.outcome.error) std::rethrow_exception(slot.outcome.error);
  lock.unlock();  // workers do not touch a slot that is ready
  BatchBuffers fresh = pool_.get();
  FilledBatch filled{std::exchange(slot.buffers, std::move(fresh)), std::exchange(slot.outcome, {})};
  slot.to = slot.buffers.memory();
  lock.lock();
  slot.rows_left = rows_of(next_batch_ + std::ssize(slots_));
  slot.is_ready = false;
  ++next_batch_;
  lock.unlock();
  work_.notify_all();
  return filled;
}

}  // namespace gputrain::data
