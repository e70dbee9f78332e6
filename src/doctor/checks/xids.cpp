// Errors of GPUs in the kernel's log (Xid). Programs cause some of them; others mean that a card is broken.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <map>
#include <string_view>

#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/doctor/checks.hpp"

namespace gputrain::doctor {
namespace {

const std::map<int, const char*>& hardware_xids() {
  static const std::map<int, const char*> kXids{
      {48, "a memory error that ECC could not correct"},
      {63, "memory was remapped"},
      {64, "memory could not be remapped"},
      {74, "an error of NVLink"},
      {79, "the GPU has fallen off the bus"},
      {92, "many corrected memory errors"},
      {94, "a contained memory error"},
      {95, "an uncontained memory error"},
      {119, "the GPU's own processor (GSP) does not answer"},
      {120, "an error of the GPU's own processor (GSP)"},
      {140, "a memory error that ECC could not correct"},
  };
  return kXids;
}

/// Returns the log's lines from the oldest to now; empty if it cannot be read.
std::vector<std::string> kernel_log(const std::filesystem::path& path) {
  constexpr int kMostReads = 1'000'000;
  std::vector<std::string> lines;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::array<char, 8192> record{};
  std::string text;
  for (int i = 0; i < kMostReads && file.get() >= 0; ++i) {
    const ssize_t count = ::read(file.get(), record.data(), record.size());  // /dev/kmsg gives one record
    if (count <= 0) break;
    text.append(record.data(), static_cast<size_t>(count));
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
      lines.push_back(text.substr(0, end));
  }
  return lines;
}

/// Returns the number in "NVRM: Xid (PCI:0000:3b:00): 79, pid=..."; 0: it is another line.
int xid_of(std::string_view line) {
  const size_t begin = line.find("NVRM: Xid");
  const size_t at = begin == std::string_view::npos ? begin : line.find("): ", begin);
  if (at == std::string_view::npos) return 0;
  int number = 0;
  std::from_chars(line.data() + at + 3, line.data() + line.size(), number);
  return number;
}

}  // namespace

Findings check_xids(const Machine& machine) {
  if (!machine.has_gpus() && machine.nvidia_devices() == 0) return {};
  const auto lines = kernel_log(machine.path("/dev/kmsg"));
  if (lines.empty())
    return {{.check = "xid", .text = "the kernel's log cannot be read here; `sudo dmesg` may show it"}};
  std::map<int, int> counts;
  for (const std::string& line : lines) {
    if (const int xid = xid_of(line); xid > 0) ++counts[xid];
  }
  if (counts.empty()) return {{.check = "xid", .text = "no errors of GPUs (Xid) in the kernel's log"}};
  Finding found{.check = "xid"};
  for (const auto& [xid, count] : counts) {
    const auto known = hardware_xids().find(xid);
    found.text += (found.text.empty() ? "Xid " : "; Xid ") + std::to_string(xid) + ", " + counted(count, "time") +
                  ": " + (known == hardware_xids().end() ? "often caused by programs" : known->second);
    if (known != hardware_xids().end()) found.verdict = Verdict::warn;
  }
  if (found.verdict != Verdict::ok)
    found.fix = "sudo dmesg -T | grep Xid; a card that does it again should be replaced";
  return {found};
}

}  // namespace gputrain::doctor
