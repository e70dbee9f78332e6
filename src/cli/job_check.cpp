#include "job_check.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "gputrain/core/error.hpp"

namespace gputrain::app {
namespace {

/// Runs this program with stdout to /dev/null. Returns its exit code, or 128 + signal.
int run_self(std::vector<std::string> words) {
  words.insert(words.begin(), "gputrain");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int failure = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    throw Error(ExitCode::environment,
                {.what = std::string("cannot start a process to check the job: ") + std::strerror(failure),
                 .hint = "see `ulimit -u` and `ulimit -n`"});
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::optional<JobStart> JobCheck::read() {
  try {
    return config::load(config::schema_of<JobStart>(), reading_of(job_)).as<JobStart>();
  } catch (const config::SpecError&) {
    if (passes()) throw;
    return std::nullopt;
  }
}

bool JobCheck::passes() {
  const config::Request reading = reading_of(job_);
  std::vector<std::string> words{"validate", job_.file};
  for (const std::string& setting : reading.set) words.insert(words.end(), {"--set", setting});
  exit_code_ = run_self(std::move(words));
  return *exit_code_ == 0;
}

}  // namespace gputrain::app
