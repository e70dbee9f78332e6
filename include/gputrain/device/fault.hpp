// Detects that a GPU broke or was taken away, which is neither the user's mistake nor a bug.
#pragma once

#include <exception>
#include <functional>
#include <optional>

#include <c10/core/Device.h>

#include "gputrain/core/error.hpp"

namespace gputrain::device {

/// Returns an Error(restart) if `failure` is such a failure.
std::optional<Error> fault_of(const std::exception& failure);

/// Does the same, and if `failure` does not name it and is no Error of ours, asks the device whether it has failed:
/// libraries such as cuBLAS report that as an error of their own. Does not wait for the device.
std::optional<Error> fault_of(const std::exception& failure, c10::Device device);

/// Makes std::terminate() end the process with the page and the exit code of fault_of(), if that is the reason.
/// LibTorch frees memory in destructors, and on a GPU that has failed some of them throw. Stays in force; the
/// destructor only takes `record` away.
class FaultExit {
 public:
  /// `record` is called before the process ends, on the thread that failed. One object at a time.
  explicit FaultExit(std::function<void(const Error&)> record);
  FaultExit(const FaultExit&) = delete;
  FaultExit& operator=(const FaultExit&) = delete;
  ~FaultExit();
};

}  // namespace gputrain::device
