// Runs two ways of an operator on the same inputs, forward and backward, and compares their errors and times.
#pragma once

#include "kernel_autotuner.hpp"

namespace gputrain::ops {

/// Returns whether this thread computes the exact results of a comparison. Operators then take ATen's way, untried:
/// their own trials would be of fp32 tensors, which a run in 16 bits never has.
bool computes_exact_results() noexcept;

struct KernelComparison {
  bool custom = false;                                // our way is as exact, and faster if times count
  double custom_ms = 0, reference_ms = 0, apart = 0;  // apart: largest relative error of our results
};

/// Compares both ways with the exact results, which are the reference's in fp32. A comparison needs extra memory; if a
/// large batch leaves too little, it runs on fewer rows. Throws OutOfMemoryError if even few do not fit, and what the
/// ways throw.
KernelComparison compare_kernels(const Tensors& inputs, const KernelAutotuner::Inputs& kinds, const OpImpl& custom,
                                 const OpImpl& reference, const KernelAutotuner::Options& options);

}  // namespace gputrain::ops
