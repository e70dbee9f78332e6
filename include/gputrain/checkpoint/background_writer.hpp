// Saving while training goes on: the training thread pays for a copy in memory, a thread of its own does the rest.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gputrain/checkpoint/store.hpp"

namespace gputrain::checkpoint {

class BackgroundWriter {
 public:
  explicit BackgroundWriter(CheckpointStore store);
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;
  ~BackgroundWriter();  // finishes what was begun

  /// How one save ended.
  struct Result {
    int64_t step = 0;
    uint64_t bytes = 0;
    double seconds = 0;        // of writing
    double stall_seconds = 0;  // of the caller: waiting for the save before, and copying
    std::optional<Error> failure;
  };

  /// Copies the snapshot's tensors, which may change as soon as this returns, and saves the copy in the background. Waits
  /// first for the save before it, which there can be one of. The memory of the copy is kept for the next one.
  void begin(const Snapshot& live);

  /// Saves in the calling thread, without a copy, after what was begun.
  Result save(const Snapshot& live);

  /// Returns when nothing is being written.
  void wait();

  /// The results of begun saves since the last call, in order.
  std::vector<Result> take_results();

 private:
  void run();
  Result write(const Snapshot& snapshot);
  Snapshot copy_of(const Snapshot& live);

  CheckpointStore store_;
  std::map<std::pair<std::string, std::string>, at::Tensor> memory_;  // by file and tensor; kept between saves
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Snapshot> begun_;  // being written
  double stall_seconds_ = 0;       // of begun_
  std::vector<Result> results_;
  bool closing_ = false;
  std::thread thread_;  // started by the first begin()
};

}  // namespace gputrain::checkpoint
