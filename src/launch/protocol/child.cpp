#include "gputrain/launch/child.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::launch {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw Error(ExitCode::environment,
              {.what = std::string("cannot start a process: ") + what + ": " + std::strerror(errno),
               .hint = "see `ulimit -u` and `ulimit -n`"});
}

struct Pipe {
  Pipe() {
    std::array<int, 2> both{};
    if (::pipe2(both.data(), O_CLOEXEC) != 0) refuse("pipe");
    ends = both;
  }
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) ::close(end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int take(size_t end) { return std::exchange(ends[end], -1); }

  std::array<int, 2> ends{-1, -1};
};

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const auto& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Beginning {
  char* const* argv;
  char* const* environment;
  int input, output, errors;
  pid_t parent;  // 0: may die before the child
};

/// Runs in the child: between fork and exec nothing may be allocated.
[[noreturn]] void become(const Beginning& begin) {
  ::setpgid(0, 0);
  if (begin.parent != 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != begin.parent) ::_exit(128 + SIGKILL);  // the parent died before prctl()
  }
  ::dup2(begin.input, STDIN_FILENO);
  ::dup2(begin.output, STDOUT_FILENO);
  ::dup2(begin.errors, STDERR_FILENO);
  for (const int signal : {SIGPIPE, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGXFSZ}) ::signal(signal, SIG_DFL);
  ::signal(SIGUSR2, SIG_IGN);  // asks for a save: a process without a handler yet must not die of it
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(begin.argv[0], begin.argv, begin.environment);
  const char* reason = ::strerrordesc_np(errno);
  for (const char* text : {"cannot run ", static_cast<const char*>(begin.argv[0]), ": ", reason, "\n"}) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
  }
  ::_exit(127);
}

}  // namespace

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  const char* meaning = ::sigdescr_np(signal);
  if (name == nullptr) return "signal " + std::to_string(signal);
  std::string text = meaning == nullptr ? "" : meaning;
  if (text.find('(') != std::string::npos) text.clear();  // "Stopped (signal)" says no more than SIGSTOP
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return "SIG" + std::string(name) + (text.empty() ? "" : " (" + text + ")");
}

Child::Child(const Options& options) {
  const auto argv = pointers_to(options.argv), environment = pointers_to(options.environment);
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe input, output, errors;
  const Beginning begin{.argv = argv.data(),
                        .environment = environment.data(),
                        .input = options.has_input ? input.ends[0] : nothing.get(),
                        .output = output.ends[1],
                        .errors = errors.ends[1],
                        .parent = options.dies_with_us ? ::getpid() : 0};
  const pid_t id = ::fork();
  if (id < 0) refuse("fork");
  if (id == 0) become(begin);
  ::setpgid(id, id);  // here too: we may signal the group before the child gets there
  id_ = id;
  if (options.has_input) input_ = input.take(1);
  output_ = output.take(0);
  errors_ = errors.take(0);
}

Child::Child(Child&& other) noexcept
    : id_(std::exchange(other.id_, -1)),
      input_(other.take_input()),
      output_(other.take_output()),
      errors_(other.take_errors()) {}

Child::~Child() {
  for (const int end : {input_, output_, errors_}) {
    if (end >= 0) ::close(end);
  }
  if (!is_running()) return;
  signal(SIGKILL);
  while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

int Child::take_input() noexcept { return std::exchange(input_, -1); }
int Child::take_output() noexcept { return std::exchange(output_, -1); }
int Child::take_errors() noexcept { return std::exchange(errors_, -1); }

std::optional<ProcessStatus> Child::look() {
  if (!is_running()) return std::nullopt;
  siginfo_t news{};
  const auto id = static_cast<id_t>(id_);
  if (::waitid(P_PID, id, &news, WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT) != 0 || news.si_pid == 0) {
    return std::nullopt;
  }
  const bool is_end = news.si_code != CLD_STOPPED && news.si_code != CLD_TRAPPED && news.si_code != CLD_CONTINUED;
  if (is_end) signal(SIGKILL);  // before it is reaped: afterwards the id may be reused
  // Takes news of this kind alone: the child may have been stopped or continued since.
  const int kind = is_end ? WEXITED : news.si_code == CLD_CONTINUED ? WCONTINUED : WSTOPPED;
  news = {};
  if (::waitid(P_PID, id, &news, kind | WNOHANG) != 0 || news.si_pid == 0) return std::nullopt;
  if (is_end) id_ = -1;
  switch (news.si_code) {
    case CLD_EXITED:
      return ProcessStatus{ProcessStatus::Kind::exited, news.si_status};
    case CLD_CONTINUED:
      return ProcessStatus{ProcessStatus::Kind::continued, news.si_status};
    case CLD_STOPPED:
    case CLD_TRAPPED:
      return ProcessStatus{ProcessStatus::Kind::stopped, news.si_status};
    default:
      return ProcessStatus{ProcessStatus::Kind::killed, news.si_status};
  }
}

bool Child::has_ended() const {
  siginfo_t news{};
  return !is_running() ||
         (::waitid(P_PID, static_cast<id_t>(id_), &news, WEXITED | WNOHANG | WNOWAIT) == 0 && news.si_pid != 0);
}

void Child::signal(int number) const {
  if (is_running()) ::kill(-id_, number);
}

}  // namespace gputrain::launch
