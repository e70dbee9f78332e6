// An optimizer: updates ranges of the arena in one fused call per decay group. One rule per file in src/optim/rules.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/config/catalog.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/ops/flat_update.hpp"

namespace gputrain::optim {

/// Device scalars of one update. On a GPU the host does not read them.
struct StepScalars {
  at::Tensor lr;                        // 0-dim; double on the CPU, float on a GPU
  std::optional<at::Tensor> found_inf;  // [1] float; 1: parameters, state and step count do not change
  std::optional<at::Tensor> divisor;    // [1] float; the update uses gradient / divisor, and may write that back into
                                        // the gradient. See GradientReport::divisor.
};

class Optimizer {
 public:
  virtual ~Optimizer();

  /// Updates the arena's values from its gradients. Call under NoGradGuard.
  virtual void step(const StepScalars& scalars) = 0;

  /// Everything a checkpoint needs beside the weights, by name: flat buffers over the rank's owned part of the arena
  /// (stored per segment) and small tensors (step count). These are the live tensors: copy into them to restore.
  struct State {
    std::vector<std::pair<std::string, at::Tensor>> flat;  // [arena.owned().size()]
    std::vector<std::pair<std::string, at::Tensor>> scalars;
  };
  virtual State state() = 0;

  virtual std::string describe() const = 0;  // "adamw betas 0.9 0.95 decay 0.1"
};

using OptimizerCatalog = config::Catalog<Optimizer, const device::Arena&>;
OptimizerCatalog& catalog();

/// The ranges of the arena that this rank updates with the same weight decay: input of a fused update.
struct DecayGroup {
  double weight_decay = 0;
  std::vector<device::Range> ranges;
  int64_t owned_begin = 0;  // where the rank's owned part begins

  /// The group's views of a flat buffer over the whole arena.
  std::vector<at::Tensor> slices(const at::Tensor& flat) const;
  /// The group's views of a state over the owned part.
  std::vector<at::Tensor> state_slices(const at::Tensor& state) const;
};

/// Splits the rank's owned part of an arena by decay. One group if `weight_decay` is zero, no group if the rank owns
/// nothing.
std::vector<DecayGroup> decay_groups(const device::Arena& arena, double weight_decay);

/// The same ranges for one update of all groups, relative to the rank's first owned element.
std::vector<ops::FlatStretch> flat_stretches(const std::vector<DecayGroup>& groups);

/// The working copy, for an update that can write it together with the values. Undefined if there is none, or if other
/// ranks own part of it.
at::Tensor copy_to_write(const device::Arena& arena);
/// Call after every update. `wrote_copy`: whether it wrote the working copy.
void note_update(const device::Arena& arena, bool wrote_copy);

}  // namespace gputrain::optim
