// The role of a parameter in its layer: weight decay, update rules and storage depend on it.
#pragma once

namespace gputrain::device {

/// The names in `optimizer.no_decay: [bias, norm]`. Some rules also treat matrices of weights differently.
enum class Role { weight, bias, norm, embedding };

}  // namespace gputrain::device
