// Peak rates of GPUs from their data sheets: operations per second of a matrix product.
#pragma once

#include <optional>
#include <string_view>

namespace gputrain::device {

/// Returns dense floating-point operations per second for a device name as in DeviceFacts and a precision of the job;
/// empty if the device is not in the table (all CPUs) or lacks the precision.
std::optional<double> peak_rate(std::string_view device, std::string_view precision);

}  // namespace gputrain::device
