// State of a rule that updates in parts.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "gputrain/device/arena.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/optim/state_on_host.hpp"

namespace gputrain::optim {

/// Flat buffers over what the rank owns. They lie on the device and are one part, or in the host's memory, and one part
/// after the other passes through the device.
class StateParts {
 public:
  /// Makes a zeroed buffer of each type. A part has at most `most` elements.
  StateParts(const device::Arena& arena, const std::vector<at::ScalarType>& types, int64_t most = kStatePart);

  /// Returns the buffers, each [arena.owned_numel()].
  const std::vector<at::Tensor>& whole() const noexcept { return whole_; }
  const std::vector<device::Range>& parts() const noexcept { return parts_; }
  /// Returns the groups of each part, whose places in the state count from its begin.
  std::vector<std::vector<UpdateGroup>> split(const std::vector<UpdateGroup>& groups) const;

  /// Calls update(part, its buffers on the device) for each part, in order. While one is updated, the next is copied to
  /// the device and the one before to the host.
  using Update = std::function<void(size_t part, const std::vector<at::Tensor>& states)>;
  void each(const Update& update) const;

  int64_t bytes_on_host() const;

 private:
  const device::Arena& arena_;
  std::vector<at::Tensor> whole_;
  std::array<std::vector<at::Tensor>, 2> places_;  // on the device, for two parts of a state on the host
  std::vector<device::Range> parts_;
};

}  // namespace gputrain::optim
