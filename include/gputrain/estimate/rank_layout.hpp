// Memory and traffic of a rank for one way to share the model, by arithmetic alone: nothing is allocated or computed.
#pragma once

#include <cstdint>
#include <vector>

#include "gputrain/estimate/step_time.hpp"
#include "gputrain/setup/fixed_memory.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// Memory beyond activations and fixed memory while the backward pass is at one bucket of gradients.
struct BackwardMoment {
  int64_t unit = 0;   // unit whose backward pass it is; -1: the pass is over
  int64_t bytes = 0;  // gathered weights, gradients being sent, and received data
};

/// Neighbouring units of a model: all of them, or a part that computes in one pass of a pipeline.
struct ModelPart {
  int64_t begin = 0, end = 0;  // units
  int64_t blocks = 0;          // number of units that are blocks; the others are the stem and the head
  double flops = 0;            // operations per sample, forward and backward

  bool has_stem() const noexcept { return begin == 0; }
};

struct RankLayout {
  FixedMemory fixed;  // memory of the rank in the stage that has most
  std::vector<BackwardMoment> moments;
  int64_t units = 0;             // units of the model
  int64_t stage = 0;             // stage of a pipeline
  std::vector<ModelPart> parts;  // parts of all stages
  int64_t largest_of_head = 0;   // bytes of the largest parameter of the last unit, or of the one it borrows
  bool shares_gradients = false;
  int64_t owned_bytes = 0;     // bytes of the values that the rank updates
  int64_t gradient_bytes = 0;  // bytes of all gradients
  std::vector<Collective> forward, backward, last_backward, after_update;
};

/// Computes the layout for the job's `parallel` keys and the stage of a simulated rank. Throws build_model()'s errors.
RankLayout rank_layout(const Job& job, const JobDatasets& datasets, const train::Plan& plan, RankContext& context);

}  // namespace gputrain::app
