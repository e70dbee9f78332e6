// An optimizer: updates ranges of the arena in one fused call per group of equal settings. One rule per file in
// src/optim/rules.
#pragma once

#include <map>
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
  at::Tensor average_weight;            // 0-dim, of lr's type: how much of the new weights WeightAverage takes
};

class Optimizer {
 public:
  virtual ~Optimizer();

  /// Updates the arena's values from its gradients. Call under NoGradGuard.
  virtual void step(const StepScalars& scalars) = 0;

  /// One kind of state, such as row_var, with a tensor of any type and sizes for each weight that has it and that this
  /// rank owns whole, by the weight's name. For rules of whole_tensors.
  struct OfWeights {
    std::string kind;
    std::vector<std::pair<std::string, at::Tensor>> tensors;
  };
  /// Everything a checkpoint needs beside the weights, by name: flat buffers over the rank's owned part of the arena
  /// (stored per segment), small tensors (step count), and tensors of single weights. These are the live tensors: copy
  /// into them to restore.
  struct State {
    std::vector<std::pair<std::string, at::Tensor>> flat;  // [arena.owned_numel()]
    std::vector<std::pair<std::string, at::Tensor>> scalars;
    std::vector<OfWeights> of_weights = {};  // every kind, also if the rank owns no weight

    /// Returns the tensors that grow with the model: all but scalars.
    std::vector<at::Tensor> large() const;
  };
  virtual State state() = 0;

  /// Updates that were made before a tensor was trained, by its name; a tensor that is not here has had all. Rules that
  /// correct for the number of updates count from there. Replaces what was set before, and is a part of state(), as
  /// scalars whose names begin with kSincePrefix.
  virtual void count_since(const std::map<std::string, double>& since);
  static constexpr const char* kSincePrefix = "since.";
  /// Updates made so far, as a restored state has them; 0 if the rule does not count.
  virtual double updates() const { return 0; }

  /// Says that a tensor begins to be trained, after its state was set to zero. For state that begins otherwise.
  virtual void begin_anew(const std::string& tensor);

  /// Returns whether evaluations, and what a run writes at its end, take an average of the weights.
  virtual bool has_average() const { return false; }
  /// Puts the average into the arena's values that this rank owns, or puts the trained values back, equal to the bit.
  /// Ranks that own a part must gather the others afterwards. Call under NoGradGuard.
  virtual void exchange_average() {}
  /// State of a rule that keeps average - weights instead of the average.
  static constexpr const char* kAverageOffset = "average_offset";

  /// Returns how much of the state lies in the host's memory, for a device that is a GPU.
  virtual int64_t bytes_on_host() const { return 0; }

  virtual std::string describe() const = 0;  // "adamw betas 0.9 0.95 decay 0.1"
};

/// What a rule needs and can do, as its spec says before it is built.
struct Abilities {
  /// It works on matrices instead of ranges, such as Muon and LAMB, and gets every tensor whole: ranks that share out
  /// the state own whole tensors.
  bool whole_tensors = false;
  /// It updates bf16 weights without a wider copy of them (`optimizer.master: bf16`): it computes in fp32 and rounds
  /// stochastically.
  bool narrow_masters = false;
  bool narrow_state = false;  // running averages in bf16
  bool has_average = false;   // as Optimizer::has_average()
  bool in_parts = false;      // it updates part by part, so that its state may lie in the host's memory
};

using OptimizerCatalog = config::CatalogOfAbilities<Abilities, Optimizer, const device::Arena&>;
OptimizerCatalog& catalog();

/// Consecutive elements that an update changes, and their place in each buffer.
struct UpdateRange {
  int64_t size = 0;
  int64_t values_at = 0;              // in the arena's values
  int64_t gradients_at = 0;           // in its gradients that have memory
  int64_t state_at = 0;               // in a state made by Arena::make_state()
  ops::RoundedElements rounded = {};  // elements of a tensor; only if ranges are those of tensors
};

/// The elements of the arena with the same settings that this rank updates: the operands of a fused update.
struct UpdateGroup {
  double weight_decay = 0;
  double lr_factor = 1;
  double since = 0;  // see Optimizer::count_since()
  std::vector<UpdateRange> ranges;

  /// Returns the group's views of the buffers, one per range.
  std::vector<at::Tensor> values(const device::Arena& arena) const;
  std::vector<at::Tensor> gradients(const device::Arena& arena) const;
  std::vector<at::Tensor> states(const at::Tensor& state) const;
  /// Returns its rate: `lr` itself if the factor is 1, else a new device scalar.
  at::Tensor rate(const at::Tensor& lr) const;
};

/// Whether neighbours of equal settings are one range, or each tensor has its own, as stochastic rounding needs.
enum class Ranges { joined, of_tensors };

/// Splits what this rank owns of an arena by settings, `weight_decay` being the rule's own. There is no group if the
/// rank owns nothing.
std::vector<UpdateGroup> update_groups(const device::Arena& arena, double weight_decay,
                                       const std::map<std::string, double>& since = {}, Ranges ranges = Ranges::joined);

/// Returns the key of a tensor's random bits: of the job's seed and the tensor's name.
uint64_t rounding_key(const device::Arena& arena, const std::string& tensor);

/// Returns the same for an update of all groups at once.
std::vector<ops::FlatStretch> flat_stretches(const std::vector<UpdateGroup>& groups);

/// A tensor of the arena that this rank owns whole, with the tensor's own sizes and strides.
struct OwnedTensor {
  const device::Segment& segment;  // the arena's; has name, sizes and role
  at::Tensor value, gradient;
  double weight_decay = 0, lr_factor = 1;
};
/// Returns all that the rank owns. Asserts that no tensor is cut between ranks.
std::vector<OwnedTensor> owned_tensors(const device::Arena& arena, double weight_decay);

/// Returns the working copy, for an update that can write it together with the values. Undefined if there is none, or
/// if other ranks own part of it.
at::Tensor copy_to_write(const device::Arena& arena);
/// Call after every update. `wrote_copy`: whether it wrote the working copy.
void note_update(const device::Arena& arena, bool wrote_copy);

}  // namespace gputrain::optim
