// The loader: dataset -> order -> worker threads -> (pinned) batch -> device, one step ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/core/batch.hpp"
#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

/// The sample at global position p of an epoch of n samples: a bijection on [0, n) computed in O(1), the same on every
/// machine (Feistel network with cycle walking, Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
int64_t permute(uint64_t seed, int64_t epoch, int64_t n, int64_t position);

/// Which samples this rank takes: of a step's B positions rank r of W takes [B r / W, B (r+1) / W).
struct Share {
  int64_t global_batch = 1;        // samples per optimizer step over all ranks
  int64_t micro_batch = 1;         // samples per micro-batch on this rank, at most
  int rank = 0;
  int world_size = 1;
};

struct LoaderOptions {
  Share share;
  uint64_t seed = 0;
  bool shuffle = true;
  bool augment = true;
  bool drop_last = false;          // last partial step of an epoch: dropped, or padded with ignored samples
  int num_workers = 0;             // 0: read in the calling thread
  int prefetch_steps = 2;          // micro-batches ready ahead, at least 1
  double max_bad_fraction = 0;     // of an epoch's samples; a bad one keeps its position with weight 0
  at::Device device = at::kCPU;
  at::ScalarType float_type = at::kFloat;  // of normalised images
  bool channels_last = false;
};

/// Where a loader stands: everything needed to go on exactly, on any number of ranks.
struct LoaderState {
  int64_t step = 0;  // optimizer steps handed out since the start of training
};

/// The micro-batches of one optimizer step on this rank, with targets counted before anything is computed.
struct StepData {
  std::vector<Batch> micro_batches;  // on the host (pinned for a GPU); pass each through Loader::to_device
  int64_t weight = 0;                // sum of Batch::weight
  int64_t samples = 0;               // sum of Batch::samples
  int64_t epoch = 0;
  bool ends_epoch = false;
};

/// Hands out optimizer steps in order, for ever; epochs follow each other.
class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, LoaderOptions options, LoaderState start = {});
  ~Loader();  // stops and joins the workers

  int64_t steps_per_epoch() const noexcept;
  int64_t micro_batches_per_step() const noexcept;

  /// The next step's data of this rank. Errors of workers are thrown here. Buffers of the step handed out before the
  /// previous one are reused: keep at most two steps.
  StepData next_step();

  /// Moves a batch to the device and finishes it: normalised floats for images. Asynchronous on a GPU.
  Batch to_device(const Batch& host) const;

  LoaderState state() const noexcept;  // after the last step handed out

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gputrain::data
