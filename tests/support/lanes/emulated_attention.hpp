#pragma once

namespace gputrain::testing_support {

/// False: simulates that cuDNN has no kernel for the gradient of attention.
extern bool has_attention_gradient;

/// The compute capability's major number. Only tests that call no operator of ATen for GPUs set one.
extern int emulated_capability;

}  // namespace gputrain::testing_support
