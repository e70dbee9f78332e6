// What a parameter is for its layer: weight decay, update rules and storage go by it.
#pragma once

namespace gputrain::device {

/// For `optimizer.no_decay: [bias, norm]`, and for rules that treat matrices of weights otherwise.
enum class Role { weight, bias, norm, embedding };

}  // namespace gputrain::device
