// Peak rates of GPUs from their data sheets: operations per second of a matrix product.
#pragma once

#include <optional>
#include <string_view>

namespace gputrain::device {

/// Returns whether this is the device's name: "NVIDIA A10" is not an A100, and a laptop's card is another one than the
/// desktop's of the same name.
bool is_named(std::string_view device, std::string_view name);

/// Returns dense floating-point operations per second for a device name as in DeviceFacts and a precision of the job;
/// empty if the device is not in the table (all CPUs) or lacks the precision.
std::optional<double> peak_rate(std::string_view device, std::string_view precision);

}  // namespace gputrain::device
