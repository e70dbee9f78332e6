#include "support/program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "support/sanitizers.hpp"
#include "support/spawn.hpp"
#include "support/warm_start.hpp"

extern char** environ;

namespace gputrain::testing_support {
namespace {

using Clock = std::chrono::steady_clock;

template <class Time>
int milliseconds_until(Time end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  return std::max(0, static_cast<int>(left.count()));
}

std::vector<std::string> merged_environment(std::map<std::string, std::string> added) {
  added.try_emplace("GPUTRAIN_METADATA_URL", "aws=http://127.0.0.1:9");  // an unused port: no test asks a real cloud
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!added.contains(text.substr(0, text.find('=')))) merged.push_back(text);
  }
  for (const auto& [name, value] : added) merged.push_back(name + "=" + value);
  return merged;
}

/// Waits until the process ends or the time is over, without polling.
bool ends_within(pid_t pid, int milliseconds) {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (descriptor < 0) throw std::runtime_error("pidfd_open failed");
  pollfd wait{.fd = descriptor, .events = POLLIN, .revents = 0};
  const int ready = poll(&wait, 1, milliseconds);
  close(descriptor);
  return ready > 0;
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "gputrain_test_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& content) const {
  const auto path = path_ / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
  return path.string();
}

Program::Program(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment) {
  std::string pattern = (std::filesystem::temp_directory_path() / "gputrain_program_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  folder_ = pattern;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  stdout_ = ends[0];
  const std::array<int, 3> streams{open("/dev/null", O_RDONLY | O_CLOEXEC), ends[1],
                                   open((folder_ / "err").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
  auto variables = merged_environment(environment);
#ifdef GPUTRAIN_WARM_LIBRARY
  pid_ = start_warm(arguments, variables, environment, streams);
#else
  pid_ = 0;
#endif
  if (pid_ == 0) pid_ = spawn(arguments, variables, streams);
  for (const int stream : streams) close(stream);
}

Program::~Program() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(stdout_);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

bool Program::is_running() const {
  siginfo_t ended{};
  return waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0;
}

void Program::signal(int number) const {
  if (pid_ <= 0) throw std::logic_error("the program has been waited for");  // -1 would mean every process
  kill(pid_, number);
}

/// False at the end of the output or on timeout.
bool Program::read_more(int timeout_milliseconds) {
  pollfd wait{.fd = stdout_, .events = POLLIN, .revents = 0};
  if (poll(&wait, 1, timeout_milliseconds) <= 0) return false;
  std::array<char, 4096> buffer{};
  const ssize_t count = read(stdout_, buffer.data(), buffer.size());
  if (count <= 0) return false;
  out_.append(buffer.data(), static_cast<size_t>(count));
  return true;
}

bool Program::prints(const std::string& text, double seconds) {
  const auto end = Clock::now() + testing::patience(std::chrono::duration<double>(seconds));
  while (out_.find(text) == std::string::npos) {
    const int left = milliseconds_until(end);
    if (left == 0 || !read_more(left)) return false;
  }
  return true;
}

Result Program::wait(double seconds) {
  const auto end = Clock::now() + testing::patience(std::chrono::duration<double>(seconds));
  for (int left = milliseconds_until(end); left > 0 && read_more(left);) left = milliseconds_until(end);
  if (!ends_within(pid_, milliseconds_until(end))) kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = out_,
          .err = read_file(folder_ / "err")};
}

std::string gputrain_path() { return GPUTRAIN_PROGRAM; }

Result gputrain(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment) {
  arguments.insert(arguments.begin(), gputrain_path());
  return Program(std::move(arguments), environment).wait();
}

}  // namespace gputrain::testing_support
