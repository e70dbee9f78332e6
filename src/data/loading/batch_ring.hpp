// Ring of micro-batches: worker threads fill it, one consumer takes batches in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "batch_source.hpp"

namespace gputrain::data {

class BatchRing final : public BatchSource {
 public:
  BatchRing(const RowReader& reader, const ReadAhead& options);
  ~BatchRing() override;

  FilledBatch next() override;
  bool has_given_up() const override { return has_given_up_; }

 private:
  struct Slot {
    BatchBuffers buffers;
    BatchMemory to;
    ReadOutcome outcome;
    int64_t rows_left = 0;  // rows not yet read
    bool is_ready = false;
  };
  /// Rows of one micro-batch for one worker: enough of them to make the cost of the lock negligible.
  struct Chunk {
    int64_t batch, begin, end;
  };

  Slot& slot_of(int64_t batch) { return slots_[static_cast<size_t>(batch % std::ssize(slots_))]; }
  int64_t rows_of(int64_t batch) const { return reader_.plan().micro_batch(batch).rows; }
  void work();
  bool has_work() const;
  Chunk claim();
  void finish(const Chunk& chunk, ReadOutcome outcome, std::unique_lock<std::mutex>& lock);
  void wait_until_ready(std::unique_lock<std::mutex>& lock);

  const RowReader& reader_;
  const ReadAhead options_;
  const int64_t chunk_rows_;
  BufferPool pool_;  // only the consumer uses it
  std::vector<Slot> slots_;

  std::mutex mutex_;
  std::condition_variable work_, ready_;
  int64_t next_batch_ = 0;   // next batch to be returned
  int64_t claim_batch_ = 0;  // the batch whose rows are being claimed
  int64_t claim_row_ = 0;
  std::atomic<bool> stop_{false};
  bool has_given_up_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace gputrain::data
