#include "support/warm_start.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>

#include "support/spawn.hpp"
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
    // The variable as main() sets it while it loads LibTorch.
    std::vector<std::string> variables{"LD_PRELOAD=" GPUTRAIN_WARM_LIBRARY, "GOMP_SPINCOUNT=2000"};
    for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
    pid_ = spawn({GPUTRAIN_PROGRAM}, variables, {ends[1], STDOUT_FILENO, STDERR_FILENO});
    ::close(ends[1]);
    is_ready_ = WarmRequest::answer_of(socket_) == 0;
  }
  ~WarmProgram() {
    ::close(socket_);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  WarmProgram(const WarmProgram&) = delete;
  WarmProgram& operator=(const WarmProgram&) = delete;

  pid_t start(const WarmRequest& request) {
    const std::lock_guard one_at_a_time(mutex_);
    return is_ready_ ? request.start(socket_) : -1;
  }

 private:
  std::mutex mutex_;
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
  static WarmProgram program;
  WarmRequest request{.arguments = arguments.size(), .words = {std::filesystem::current_path()}, .streams = streams};
  for (const auto* each : {&arguments, &variables})
    request.words.insert(request.words.end(), each->begin(), each->end());
  return std::max(0, program.start(request));
}

}  // namespace gputrain::testing_support
