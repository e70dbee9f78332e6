// What a test needs of the machine. Without it the test is skipped, and says why.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gputrain::testing {

/// Begins the reason of a skip that no package helps against. CI allows it: scripts/summarize_tests.py.
inline constexpr const char* kNotPossible = "not possible here: ";

/// Where a program lies; empty: it is not installed.
inline std::string path_of(const std::string& program) {
  if (program.front() == '/') return ::access(program.c_str(), X_OK) == 0 ? program : "";
  const char* folders = std::getenv("PATH");
  std::istringstream each(folders == nullptr ? "/usr/bin:/bin" : folders);
  for (std::string folder; std::getline(each, folder, ':');) {
    const std::string path = folder + "/" + program;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

/// The first of these programs that is not installed, as the reason of a skip; empty: none.
inline std::string missing_program(const std::vector<std::string>& programs) {
  for (const std::string& program : programs) {
    if (path_of(program).empty()) return program + " is missing: run scripts/setup.sh --tests";
  }
  return {};
}

/// Why a shell command fails here; empty: it works. Each command is tried once per process.
inline std::string why_not(const std::string& command) {
  static std::map<std::string, std::string> reasons;
  const auto [known, is_new] = reasons.try_emplace(command);
  if (!is_new) return known->second;
  std::string output;
  FILE* pipe = ::popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  if (pipe == nullptr) return known->second = std::string(kNotPossible) + "no shell";
  std::array<char, 4096> buffer{};
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), count);
  if (::pclose(pipe) == 0) return {};
  output.resize(std::min(output.size(), output.find_last_not_of('\n') + 1));
  return known->second = kNotPossible + (output.empty() ? "`" + command + "` fails" : output);
}

// Containers withhold the following even from root, unless they are started with --privileged.

/// Why a program cannot have file systems of its own.
inline std::string no_own_mounts() {
  return why_not(
      "unshare --mount sh -c 'mount -t tmpfs tmpfs /tmp && mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp'");
}

/// Why a program cannot be the first of its own process namespace.
inline std::string no_own_processes() { return why_not("unshare --pid --fork --mount-proc true"); }

/// Why there cannot be several hosts on this machine: network namespaces with links between them.
inline std::string no_own_hosts() {
  const std::string name = "gp" + std::to_string(::getpid());
  return why_not("ip netns add " + name + " && ip netns exec " + name + " true && ip link add " + name +
                 "b type bridge && ip link add " + name + "v type veth peer name eth0 netns " + name +
                 "; status=$?; for each in v b; do ip link del " + name + "$each; done 2>/dev/null; ip netns del " +
                 name + " 2>/dev/null; exit $status");
}

}  // namespace gputrain::testing

/// Skips the test for a reason that is not empty. CI has all packages: there a missing one fails the test.
#define GPUTRAIN_SKIP_FOR(given_reason)                                             \
  do {                                                                              \
    const std::string reason = (given_reason);                                      \
    if (reason.empty()) break;                                                      \
    const bool is_helpless = reason.starts_with(::gputrain::testing::kNotPossible); \
    if (std::getenv("CI") != nullptr && !is_helpless) FAIL() << reason;             \
    GTEST_SKIP() << reason;                                                         \
  } while (false)
