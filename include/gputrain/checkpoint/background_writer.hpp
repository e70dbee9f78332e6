// Asynchronous saves: the training thread only copies the tensors, and a background thread writes the checkpoint.
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
  ~BackgroundWriter();  // finishes the save in progress

  /// Result of one save.
  struct Result {
    int64_t step = 0;
    std::filesystem::path folder = {};  // folder of the checkpoint, on rank 0
    uint64_t bytes = 0;
    double seconds = 0;         // until the checkpoint is durable
    double verify_seconds = 0;  // to read it back and prune older checkpoints
    double stall_seconds = 0;   // the caller waited for the previous save and for the copy
    std::optional<Error> failure;
    bool has_device_failed = false;  // the reason of `failure`; another save would fail too
  };

  /// Copies the snapshot's tensors, then saves the copy in the background. First waits for the previous save: only one
  /// runs at a time. When this returns, tensors may change, except those that share storage with `still`: they are
  /// copied during the next backward pass and must not change until finish_copy() has returned. The copy's memory is
  /// kept for the next save. If it cannot be allocated, the save fails.
  void begin(const Snapshot& live, const std::vector<at::Tensor>& still = {});

  /// Call before the tensors in `still` change.
  void finish_copy();

  /// Waits for the save in progress, then saves in the calling thread, without a copy.
  Result save(const Snapshot& live);

  /// Waits until the save in progress has ended.
  void wait();

  /// Results of background saves since the last call, in order.
  std::vector<Result> take_results();

 private:
  void run();
  Result write(const Snapshot& snapshot);
  void give_up(const Snapshot& live, const device::Shortage& shortage);
  Snapshot copy_of(const Snapshot& live, const std::vector<at::Tensor>& still);
  at::Tensor kept_memory(const std::string& file, const std::string& name, const at::Tensor& like);

  CheckpointStore store_;
  device::Staging staging_;
  std::map<std::pair<std::string, std::string>, at::Tensor> memory_;  // keys: file and tensor; kept between saves
  std::vector<std::pair<at::Tensor, at::Tensor>> to_copy_;            // (to, from): the thread's copies for begun_
  std::optional<at::Device> copying_from_;                            // the GPU to synchronise, once for all copies
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Snapshot> begun_;  // being copied or written
  bool copying_ = false;
  double stall_seconds_ = 0;  // stall of the begun_ save
  std::vector<Result> results_;
  bool closing_ = false;
  std::thread thread_;  // started by the first begin()
};

}  // namespace gputrain::checkpoint
