// Limits of the shell that starts ranks: open files, locked memory, processes.
#include <cstdlib>
#include <limits>
#include <map>
#include <sstream>

#include "gputrain/doctor/checks.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::doctor {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

struct Limit {
  int64_t soft = kUnlimited, hard = kUnlimited;
};

int64_t number(const std::string& word) { return word == "unlimited" ? kUnlimited : std::atoll(word.c_str()); }

/// Reads "Max open files            1024                 524288               files".
std::map<std::string, Limit> limits_of(const Machine& machine) {
  std::map<std::string, Limit> found;
  for (const std::string& line : machine.lines("/proc/self/limits")) {
    if (line.size() < 28) continue;
    std::istringstream words(line.substr(26));
    std::string soft, hard;
    if (words >> soft >> hard) found[line.substr(0, line.find("  "))] = {number(soft), number(hard)};
  }
  return found;
}

std::string text_of(int64_t value, bool is_bytes) {
  if (value == kUnlimited) return "unlimited";
  return is_bytes ? monitor::bytes(value) : std::to_string(value);
}

}  // namespace

Findings check_limits(const Machine& machine) {
  constexpr int64_t kFewFiles = 4096, kFewProcesses = 4096;
  auto limits = limits_of(machine);
  if (limits.empty()) return {};
  // The program raises the number of open files to its hard limit.
  const int64_t files = limits["Max open files"].hard, locked = limits["Max locked memory"].soft,
                processes = limits["Max processes"].soft;
  Finding found{
      .check = "limits",
      .text = "open files " + text_of(files, false) + "  locked memory " + text_of(locked, true) + "  processes " +
              text_of(processes, false),
      .facts = {{"limit of open files", text_of(files, false)}, {"limit of locked memory", text_of(locked, true)}}};
  const auto complain = [&](const std::string& why, const std::string& fix) {
    found.verdict = Verdict::warn;
    found.text += "; " + why;
    if (found.fix.empty()) found.fix = fix;
  };
  const std::string file = "/etc/security/limits.d/gputrain.conf, and log in again";
  if (files < kFewFiles) complain("too few open files for many ranks", "echo '* - nofile 65536' | sudo tee " + file);
  if (locked != kUnlimited && !machine.list("/sys/class/infiniband").empty())
    complain("InfiniBand needs unlimited locked memory", "echo '* - memlock unlimited' | sudo tee " + file);
  if (processes < kFewProcesses) complain("few processes", "echo '* - nproc 65536' | sudo tee " + file);
  return {found};
}

}  // namespace gputrain::doctor
