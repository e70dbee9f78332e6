#include "gputrain/device/fault.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "first_line.hpp"

namespace gputrain::device {
namespace {

// Global, because a terminate handler takes no arguments.
std::mutex record_mutex;
std::function<void(const Error&)> record_of_fault;
std::terminate_handler handler_before = nullptr;

[[noreturn]] void end_by(const Error& fault) {
  const std::string text = std::string("error: ") + fault.what() + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  try {
    const std::lock_guard lock(record_mutex);
    if (record_of_fault) record_of_fault(fault);
  } catch (const std::exception&) {
    // The process ends either way.
  }
  std::_Exit(static_cast<int>(fault.code()));
}

[[noreturn]] void end_by_fault_or_terminate() {
  if (const std::exception_ptr failure = std::current_exception()) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      if (const auto fault = fault_of(error)) end_by(*fault);
    } catch (...) {
      // No failure of a GPU.
    }
  }
  if (handler_before != nullptr) handler_before();
  std::abort();
}

}  // namespace

FaultExit::FaultExit(std::function<void(const Error&)> record) {
  const std::lock_guard lock(record_mutex);
  record_of_fault = std::move(record);
  const auto before = std::set_terminate(&end_by_fault_or_terminate);
  if (before != &end_by_fault_or_terminate) handler_before = before;
}

FaultExit::~FaultExit() {
  const std::lock_guard lock(record_mutex);
  record_of_fault = nullptr;
}

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

std::optional<Error> fault_of(const std::exception& failure, c10::Device device) {
  if (const auto fault = fault_of(failure)) return fault;
  if (device.is_cpu() || dynamic_cast<const Error*>(&failure) != nullptr) return std::nullopt;
  try {
    const c10::impl::VirtualGuardImpl calls(device.type());
    calls.queryStream(calls.getStream(device));
  } catch (const std::exception& answer) {
    return fault_of(answer);
  }
  return std::nullopt;
}

}  // namespace gputrain::device
