#pragma once

namespace gputrain::testing_support {

/// False: cuDNN has no kernel for the gradient of attention.
extern bool has_attention_gradient;

}  // namespace gputrain::testing_support
