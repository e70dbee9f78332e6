#pragma once

namespace gputrain::testing_support {

/// False: simulates that cuDNN has no kernel for the gradient of attention.
extern bool has_attention_gradient;

}  // namespace gputrain::testing_support
