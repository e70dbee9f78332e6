// The loader: dataset -> order -> worker threads -> (pinned) batch -> device, read ahead of the training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/core/batch.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/data/usage.hpp"

namespace gputrain::data {

/// Which samples this rank takes. Of a step's B positions micro-batch i of m takes [B i / m, B (i+1) / m) over all
/// ranks, so that it is the same samples on any number of ranks; of its n positions rank r of W takes [n r / W, n (r+1)
/// / W), or its part by `micro_batches`.
struct Share {
  int64_t global_batch = 1;                 // samples per optimizer step over all ranks
  int64_t micro_batch = 1;                  // samples per micro-batch on each rank, at most
  std::vector<int64_t> micro_batches = {};  // the same of each rank, where they differ; empty: micro_batch everywhere
  int rank = 0;
  int world_size = 1;
};

/// A sample that could not be read and was skipped because `max_bad_fraction` allows it.
struct BadSample {
  int64_t index = 0;  // in the dataset
  int64_t epoch = 0;
  std::string message;
};

struct LoaderOptions {
  Share share;
  uint64_t seed = 0;
  bool shuffle = true;
  bool augment = true;
  bool drop_last = false;       // last partial step of an epoch: dropped, or padded with samples that do not count
  bool pads = true;             // false: what does not count is cut off, so that the last step's shapes differ
  int num_workers = 0;          // 0: read in the calling thread
  int prefetch_batches = 2;     // micro-batches ready ahead, at least 1; never fewer than one step has
  int64_t total_steps = 0;      // steps that will be asked for, nothing is read past them; 0: no end
  double max_bad_fraction = 0;  // of an epoch's samples; a bad one keeps its position with weight 0
  std::function<void(const BadSample&)> on_bad_sample = {};  // in order, from next_step()
  double timeout_seconds = 600;                              // longest wait for a batch
  bool pin_memory = true;                                    // only when `device` is a GPU
  at::Device device = at::kCPU;                              // where batches go
};

/// Where a loader stands: everything needed to go on exactly, on any number of ranks.
struct LoaderState {
  int64_t step = 0;        // optimizer steps handed out since the start of training
  int64_t unreadable = 0;  // samples of the epoch at hand that were skipped, on all ranks
};

/// The micro-batches of one optimizer step on this rank, with targets counted before anything is computed. Every step
/// of every rank has the same number of micro-batches; its shapes are those of every other step, unless they are cut.
struct StepData {
  std::vector<Batch> micro_batches;  // on the host, or on their way to a GPU; Preprocess finishes each
  int64_t weight = 0;                // sum of Batch::weight
  int64_t samples = 0;               // sum of Batch::samples
  Usage usage;                       // as the samples were read
  int64_t epoch = 0;
  bool ends_epoch = false;
};

/// Hands out optimizer steps in order, for ever; epochs follow each other. For one consuming thread.
class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, LoaderOptions options, LoaderState start = {});
  ~Loader();  // stops and joins the workers

  int64_t steps_per_epoch() const noexcept;
  int64_t micro_batches_per_step() const noexcept;

  /// The next step's data of this rank; the first call starts the workers. Errors of workers are thrown here, the
  /// earliest sample's first. The tensors are the caller's for as long as it keeps them.
  StepData next_step();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gputrain::data
