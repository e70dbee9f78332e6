// The loader: dataset -> order -> worker threads -> (pinned) batch -> device; reads ahead of training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/data/batch.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/data/mixing.hpp"
#include "gputrain/data/order.hpp"
#include "gputrain/data/sample_usage.hpp"

namespace gputrain::data {

/// Share of the samples that this rank reads. Micro-batch i of m has the positions [B i / m, B (i+1) / m) of a step's
/// B, over all ranks, so it has the same samples for any number of ranks. Rank r of W reads [n r / W, n (r+1) / W) of
/// its n positions.
struct DataPartition {
  int64_t global_batch = 1;  // samples per optimizer step over all ranks
  int64_t micro_batch = 1;   // maximum samples per micro-batch on each rank
  int rank = 0;
  int world_size = 1;
};

/// A sample that could not be read; skipped because `max_bad_fraction` allows it.
struct BadSample {
  int64_t index = 0;  // number in the dataset
  int64_t epoch = 0;
  std::string message;
};

struct LoaderOptions {
  DataPartition partition;
  uint64_t seed = 0;
  bool shuffle = true;
  bool augment = true;
  int64_t repeats = 1;                     // SampleOrder's; only with `augment`
  MixOptions mix = {};                     // mixing of images; only with `augment`
  std::vector<double> class_weights = {};  // weight of each class in the loss; empty: 1
  bool drop_last = false;  // true: drop the last partial step of an epoch; false: pad it with samples that do not count
  bool pads = true;        // false: cut padding rows off (batch norm), so that the shapes of the last step differ
  int num_workers = 0;     // threads that read; 0: the calling thread reads
  int prefetch_batches = 2;     // micro-batches kept ready, at least 1 and at least those of one step
  int64_t steps = 0;            // number of steps that the caller will ask for; nothing after them is read; 0: no limit
  double max_bad_fraction = 0;  // fraction of an epoch's samples; a skipped sample keeps its position, with weight 0
  std::function<void(const BadSample&)> on_bad_sample = {};  // called in order, from next_step()
  double timeout_seconds = 600;                              // longest wait for a batch
  /// Number of lengths that batches of texts may have, each at least that of its longest text; 0: just that length.
  /// With a number, batches also have an upper bound of their targets that count: BatchField::most_counted.
  int64_t length_classes = 0;
  bool pin_memory = true;        // ignored unless `device` is a GPU
  at::Device device = at::kCPU;  // device of the batches
};

/// Start of a loader: all that it needs to continue exactly, on any number of ranks and with any global batch.
struct LoaderState {
  Position from = {};
  int64_t unreadable = 0;  // samples of the current epoch that were skipped, on all ranks
};

/// The micro-batches of one optimizer step on this rank, with targets already counted. Every step of every rank has the
/// same number of micro-batches. Shapes are the same in every step, unless LoaderOptions::pads is false.
struct StepData {
  std::vector<Batch> micro_batches;  // on the host, or being copied to a GPU; Preprocess finishes each
  int64_t weight = 0;                // sum of Batch::weight
  std::vector<double> loss_weights;  // Batch::weight of each, with each target times the weight of its class
  int64_t samples = 0;               // sum of Batch::samples
  SampleUsage usage;                 // usage of the samples read
  int64_t epoch = 0;
  bool ends_epoch = false;
};

/// Reader of optimizer steps in order, without end: one epoch follows the other. For one consumer thread.
class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, LoaderOptions options, LoaderState start = {});
  ~Loader();  // stops and joins the workers

  int64_t steps_per_epoch() const noexcept;
  int64_t micro_batches_per_step() const noexcept;

  /// Returns this rank's data of the next step; the first call starts the workers. Rethrows a worker's error, that of
  /// the earliest sample first. The caller owns the tensors.
  StepData next_step();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gputrain::data
