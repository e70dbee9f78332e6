#include "gputrain/device/fault.hpp"

#include <algorithm>
#include <array>

#include <c10/util/Exception.h>

#include "first_line.hpp"

namespace gputrain::device {

std::optional<Error> fault_of(const std::exception& failure) {
  // cudaErrorDevicesUnavailable, ECCUncorrectable, NvlinkUncorrectable, Contained, HardwareStackError, LaunchFailure,
  // Unknown. Illegal addresses and instructions are excluded: those are bugs of programs.
  constexpr std::array kFaults{46, 214, 220, 226, 714, 719, 999};
  const auto* error = dynamic_cast<const c10::AcceleratorError*>(&failure);
  if (error == nullptr || std::ranges::find(kFaults, error->get_error_code()) == kFaults.end()) return std::nullopt;
  return Error(ExitCode::restart,
               {.what = "a GPU has failed: " + first_line(failure),
                .hint = "a restart continues from the newest checkpoint; if it happens again, `nvidia-smi -q` and the "
                        "Xid lines in the kernel log (dmesg) show what is broken"});
}

}  // namespace gputrain::device
