#include "support/process_family.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "support/program.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::testing_support {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPause = std::chrono::milliseconds(10);  // between two looks at all processes

std::map<std::string, std::string> variables_in(const std::string& block) {
  std::map<std::string, std::string> variables;
  std::istringstream entries(block);
  for (std::string entry; std::getline(entries, entry, '\0');) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return variables;
}

/// Never returns -1: a signal to it would go to every process of the machine.
pid_t first_found(const std::string& what, const std::function<pid_t()>& look) {
  const auto latest = Clock::now() + testing::patience(std::chrono::seconds(10));
  while (Clock::now() < latest) {
    if (const pid_t found = look(); found > 0) return found;
    std::this_thread::sleep_for(kPause);
  }
  throw std::runtime_error("there is no " + what);
}

}  // namespace

ProcessFamily::ProcessFamily() {
  static int number = 0;
  mark_ = std::to_string(getpid()) + "." + std::to_string(++number);
}

ProcessFamily::~ProcessFamily() {
  for (const auto& process : find()) kill(process.id, SIGKILL);
  for (const int descriptor : remembered_) close(descriptor);
}

std::vector<ProcessFamily::Process> ProcessFamily::find() const {
  std::vector<Process> family;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    auto variables = variables_in(read_file(entry.path() / "environ"));
    if (variables["GPUTRAIN_TEST_MARK"] != mark_) continue;
    std::string command = read_file(entry.path() / "cmdline");
    for (char& c : command) c = c == '\0' ? ' ' : c;
    family.push_back({.id = std::stoi(name), .variables = std::move(variables), .command = command});
  }
  return family;
}

pid_t ProcessFamily::rank(int number) const {
  return first_found("rank " + std::to_string(number), [&] {
    for (auto& process : find()) {
      if (process.variables["RANK"] == std::to_string(number) && process.command.find(" run ") != std::string::npos)
        return process.id;
    }
    return -1;
  });
}

pid_t ProcessFamily::agent() const {
  return first_found("agent", [&] {
    for (const auto& process : find()) {
      if (process.command.ends_with(" agent ")) return process.id;
    }
    return -1;
  });
}

void ProcessFamily::remember() {
  for (const auto& process : find()) {
    const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process.id, 0));
    if (descriptor >= 0) remembered_.push_back(descriptor);
  }
}

bool ProcessFamily::ends_within(double seconds) {
  const auto latest = Clock::now() + testing::patience(std::chrono::duration<double>(seconds));
  for (const int descriptor : remembered_) {
    pollfd end{.fd = descriptor, .events = POLLIN, .revents = 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(latest - Clock::now()).count();
    if (poll(&end, 1, static_cast<int>(std::max<int64_t>(0, left))) <= 0) return false;
  }
  while (!find().empty()) {  // started since, or not yet reaped
    if (Clock::now() > latest) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

std::vector<std::string> ProcessFamily::living() const {
  std::vector<std::string> commands;
  for (const auto& process : find()) commands.push_back(std::to_string(process.id) + " " + process.command);
  return commands;
}

}  // namespace gputrain::testing_support
