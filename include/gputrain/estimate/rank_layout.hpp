// What a rank holds and sends for one way to share the model among ranks, by the arithmetic of the arena: nothing is
// allocated or computed.
#pragma once

#include <cstdint>
#include <vector>

#include "gputrain/estimate/step_time.hpp"
#include "gputrain/setup/fixed_memory.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// What has memory, beside activations and what is fixed, while the backward pass is at one bucket of gradients.
struct BackwardMoment {
  int64_t unit = 0;   // of the model, whose backward pass it is; -1: it is over
  int64_t bytes = 0;  // gathered weights, gradients on their way, what is received
};

/// Neighbouring units of a model: all of them, or those that pass through a pipeline at a time.
struct ModelPart {
  int64_t begin = 0, end = 0;  // units
  int64_t blocks = 0;          // of its units; the others are the stem and the head
  double flops = 0;            // of a sample, forward and backward

  bool has_stem() const noexcept { return begin == 0; }
};

struct RankLayout {
  FixedMemory fixed;  // of the rank of the stage that has most
  std::vector<BackwardMoment> moments;
  int64_t units = 0;             // of the model
  int64_t stage = 0;             // of a pipeline
  std::vector<ModelPart> parts;  // of all stages
  int64_t largest_of_head = 0;   // bytes of the largest parameter of the last unit, or of the one it borrows
  bool shares_gradients = false;
  int64_t owned_bytes = 0;     // of the values that the rank updates
  int64_t gradient_bytes = 0;  // of all gradients
  std::vector<Collective> forward, backward, last_backward, after_update;
};

/// The layout for the job's `parallel` keys and the stage of `context`, a simulated rank. Throws the errors of
/// build_model().
RankLayout rank_layout(const Job& job, const JobDatasets& datasets, const train::Plan& plan, RankContext& context);

}  // namespace gputrain::app
