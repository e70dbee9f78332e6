#include "batch_source.hpp"

#include <atomic>
#include <mutex>
#include <utility>

#include <ATen/Parallel.h>

#include "batch_ring.hpp"

namespace gputrain::data {
namespace {

/// Source that reads on demand, on torch's compute threads: they would wait for the batch anyway.
class InlineSource final : public BatchSource {
 public:
  InlineSource(const RowReader& reader, const ReadAhead& options)
      : reader_(reader), pool_(reader.dataset().layout(), reader.plan().most_rows(), options.pinned) {}

  FilledBatch next() override {
    FilledBatch filled{pool_.get(), {}};
    const BatchMemory to = filled.buffers.memory();
    const int64_t rows = reader_.plan().micro_batch(next_batch_).rows;
    std::mutex mutex;
    const auto read = [&](int64_t begin, int64_t end) {
      ReadOutcome part = reader_.read(next_batch_, begin, end, to, never_);
      const std::lock_guard lock(mutex);
      filled.outcome.add(std::move(part));
    };
    if (reader_.dataset().is_cheap_to_read()) {
      read(0, rows);
    } else {
      at::parallel_for(0, rows, 1, read);
    }
    if (filled.outcome.error) std::rethrow_exception(filled.outcome.error);
    reader_.complete(next_batch_, to);
    ++next_batch_;
    return filled;
  }

 private:
  const RowReader& reader_;
  BufferPool pool_;
  int64_t next_batch_ = 0;
  const std::atomic<bool> never_{false};
};

}  // namespace

std::unique_ptr<BatchSource> make_batch_source(const RowReader& reader, const ReadAhead& options) {
  if (options.workers == 0) return std::make_unique<InlineSource>(reader, options);
  return std::make_unique<BatchRing>(reader, options);
}

}  // namespace gputrain::data
