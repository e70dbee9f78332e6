// Sizes of an optimizer's state that lies in the host's memory.
#pragma once

#include <cstdint>

namespace gputrain::optim {

/// Elements that are updated at a time.
inline constexpr int64_t kStatePart = int64_t{1} << 22;

/// Returns the elements of a state of `numel` for which the device has room: a part, and if there are more the next
/// one.
constexpr int64_t state_on_device(int64_t numel) { return numel > kStatePart ? 2 * kStatePart : numel; }

}  // namespace gputrain::optim
