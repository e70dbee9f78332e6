// Saving while training goes on: the training thread pays for a copy in memory, a thread of its own does the rest.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gputrain/checkpoint/store.hpp"
#include "gputrain/device/out_of_memory.hpp"
#include "gputrain/device/staging.hpp"

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
    std::filesystem::path folder = {};  // of the checkpoint, on rank 0
    uint64_t bytes = 0;
    double seconds = 0;         // until it was durable
    double verify_seconds = 0;  // of reading it back, and removing older ones
    double stall_seconds = 0;   // of the caller: waiting for the save before, and for the copy
    std::optional<Error> failure;
  };

  /// Copies the snapshot's tensors and saves the copy, in the background. Waits first for the save before it, which
  /// there can be one of. Tensors may change as soon as this returns, but not those in the storage of `still`: they are
  /// copied while training already computes the next gradients, and hold still until finish_copy() has returned. The
  /// memory of the copy is kept for the next one; where none can be had, that is a save that has failed.
  void begin(const Snapshot& live, const std::vector<at::Tensor>& still = {});

  /// To be called before what was `still` changes.
  void finish_copy();

  /// Saves in the calling thread, without a copy, after what was begun.
  Result save(const Snapshot& live);

  /// Returns when nothing is being written.
  void wait();

  /// The results of begun saves since the last call, in order.
  std::vector<Result> take_results();

 private:
  void run();
  Result write(const Snapshot& snapshot);
  void give_up(const Snapshot& live, const device::Shortage& shortage);
  Snapshot copy_of(const Snapshot& live, const std::vector<at::Tensor>& still);
  at::Tensor kept_memory(const std::string& file, const std::string& name, const at::Tensor& like);

  CheckpointStore store_;
  device::Staging staging_;
  std::map<std::pair<std::string, std::string>, at::Tensor> memory_;  // by file and tensor; kept between saves
  std::vector<std::pair<at::Tensor, at::Tensor>> to_copy_;            // to, from: of begun_, by the thread
  std::optional<at::Device> copying_from_;                            // a GPU, which is not waited for each time
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Snapshot> begun_;  // being copied or written
  bool copying_ = false;
  double stall_seconds_ = 0;  // of begun_
  std::vector<Result> results_;
  bool closing_ = false;
  std::thread thread_;  // started by the first begin()
};

}  // namespace gputrain::checkpoint
