// An optimizer: updates ranges of the arena in one fused call per decay group. One rule per file in src/optim.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/config/catalog.hpp"
#include "gputrain/device/arena.hpp"

namespace gputrain::optim {

/// The device scalars of one update. Nothing here is read on the host.
struct StepScalars {
  at::Tensor lr;         // 0-dim; double on the CPU, float on a GPU
  at::Tensor found_inf;  // [1] float; nonzero: leave parameters, state and step count untouched. May be undefined.
};

class GPUTRAIN_API Optimizer {
 public:
  virtual ~Optimizer();

  /// Updates the arena's values from its gradients (already unscaled, averaged and clipped). Call under NoGradGuard.
  virtual void step(const StepScalars& scalars) = 0;

  /// Everything that must be in a checkpoint beside the weights: flat buffers shaped like the arena (to be stored per
  /// segment) and small tensors (step count), by name. The tensors are the live ones: copy into them to restore.
  struct State {
    std::vector<std::pair<std::string, at::Tensor>> flat;     // [arena numel]
    std::vector<std::pair<std::string, at::Tensor>> scalars;
  };
  virtual State state() = 0;

  virtual std::string describe() const = 0;  // "adamw lr 0.001 betas 0.9 0.95 decay 0.1"
};

using OptimizerCatalog = config::Catalog<Optimizer, const device::Arena&>;
GPUTRAIN_API OptimizerCatalog& catalog();

}  // namespace gputrain::optim
