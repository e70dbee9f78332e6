#include "support/warm_start.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "support/warm_request.hpp"

extern char** environ;

namespace gputrain::testing_support {
namespace {

/// The process that is copied; it ends with this one.
class WarmProgram {
 public:
  WarmProgram() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
    socket_ = ends[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    std::string program = GPUTRAIN_PROGRAM, preload = "LD_PRELOAD=" GPUTRAIN_WARM_LIBRARY,
                spins = "GOMP_SPINCOUNT=2000";
    std::vector<char*> variables{preload.data(), spins.data()}, arguments{program.data(), nullptr};
    for (char** entry = environ; *entry != nullptr; ++entry) variables.push_back(*entry);
    variables.push_back(nullptr);
    if (::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), variables.data()) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    is_ready_ = answer() == 0;
  }
  ~WarmProgram() {
    ::close(socket_);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  WarmProgram(const WarmProgram&) = delete;
  WarmProgram& operator=(const WarmProgram&) = delete;

  pid_t start(const WarmRequest& request) const { return is_ready_ && request.send(socket_) ? answer() : -1; }

 private:
  pid_t answer() const {
    pid_t answer = -1;
    return ::read(socket_, &answer, sizeof answer) == sizeof answer ? answer : -1;
  }

  int socket_ = -1;
  pid_t pid_ = -1;
  bool is_ready_ = false;
};

bool loads_no_library(const std::string& argument) {
  return std::set<std::string>{"launch", "complete", "--help", "--version"}.contains(argument);
}

/// Returns whether a program that was loaded with our variables may have this one.
bool is_read_late(const std::pair<const std::string, std::string>& variable) {
  static const std::set<std::string> names{"RANK",        "LOCAL_RANK",  "WORLD_SIZE",     "LOCAL_WORLD_SIZE",
                                           "MASTER_ADDR", "MASTER_PORT", "XDG_STATE_HOME", "GPUTRAIN_METADATA_URL"};
  const char* ours = std::getenv(variable.first.c_str());
  return names.contains(variable.first) || (ours != nullptr && ours == variable.second);
}

}  // namespace

pid_t start_warm(const std::vector<std::string>& arguments, const std::vector<std::string>& variables,
                 const std::map<std::string, std::string>& changed, const std::array<int, 3>& streams) {
  if (arguments[0] != GPUTRAIN_PROGRAM || std::any_of(arguments.begin(), arguments.end(), loads_no_library)) return 0;
  if (!std::all_of(changed.begin(), changed.end(), is_read_late)) return 0;
  if (std::getenv("GPUTRAIN_COLD_STARTS") != nullptr) return 0;
  static const WarmProgram program;
  WarmRequest request{.arguments = arguments.size(), .words = {std::filesystem::current_path()}, .streams = streams};
  for (const auto* each : {&arguments, &variables})
    request.words.insert(request.words.end(), each->begin(), each->end());
  return std::max(0, program.start(request));
}

}  // namespace gputrain::testing_support
