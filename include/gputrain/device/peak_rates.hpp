// What a GPU's data sheet promises: the most operations per second that a product of matrices could reach.
#pragma once

#include <optional>
#include <string_view>

namespace gputrain::device {

/// Floating-point operations per second of dense products, for a device as DeviceFacts names it and a precision of the
/// job; empty for devices that are not in the table, CPUs among them.
std::optional<double> peak_rate(std::string_view device, std::string_view precision);

}  // namespace gputrain::device
