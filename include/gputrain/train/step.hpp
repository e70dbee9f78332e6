// One optimizer step: micro-batches, backward, reduction, unscale, clip, update. Reads nothing on the host.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "gputrain/data/loader.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/optim/grad_scaler.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/optim/schedule.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "gputrain/train/feed.hpp"
#include "gputrain/train/hook.hpp"

namespace gputrain::train {

class Step {
 public:
  struct Options {
    double label_smoothing = 0;
    std::optional<double> max_grad_norm;
    bool sync_batch_norm = false;  // a forward pass is one over all ranks: none leaves it out alone
  };
  /// What a step works on; all outlive it.
  struct Parts {
    models::Model& model;
    device::Arena& arena;
    data::Loader& loader;
    parallel::DataParallel& data_parallel;
    optim::Optimizer& optimizer;
    optim::GradScaler* scaler;  // null unless the precision needs loss scaling
    std::function<void()> before_update = [] {};  // called once per step, before weights or optimizer state change
  };

  Step(Parts parts, Options options) : parts_(parts), options_(options) {}

  /// Runs the step with learning rate `lr`. Every rank must call, with the totals the ranks agreed on.
  StepResult run(const Feed::Step& feed, double lr);

 private:
  at::Tensor accumulate_gradients(const Feed::Step& feed);

  Parts parts_;
  Options options_;
  bool views_checked_ = false;
};

}  // namespace gputrain::train
