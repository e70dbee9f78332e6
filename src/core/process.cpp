#include "gputrain/core/process.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "gputrain/core/error.hpp"
#include "gputrain/core/start_ticks.hpp"

namespace gputrain {
namespace {

extern "C" void end_by_signal(int signal) { std::_Exit(128 + signal); }

}  // namespace

/// Field 22 of /proc/PID/stat, counted after the ")" of the name. A process that nobody has waited for yet has ended.
std::optional<int64_t> start_ticks_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string state, field;
  fields >> state;
  for (int number = 4; number < 22; ++number) fields >> field;
  int64_t ticks = 0;
  if (!(fields >> ticks) || state == "Z" || state == "X") return std::nullopt;
  return ticks;
}

std::string own_program() {
  constexpr std::string_view kReplaced = " (deleted)";  // the kernel appends this
  std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  if (path.ends_with(kReplaced) && !std::filesystem::exists(path)) path.resize(path.size() - kReplaced.size());
  return path;
}

void require_current_folder() {
  std::error_code failure;
  static_cast<void>(std::filesystem::current_path(failure));
  if (!failure) return;
  throw Error(ExitCode::environment,
              {.what = "the current folder cannot be used, it may have been deleted: " + failure.message(),
               .hint = "cd into a folder that exists, even if a new one has the same name"});
}

void raise_open_files_limit() {
  constexpr rlim_t kEnough = 65536;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_init() { return ::getpid() == 1; }

void let_signals_end_init() {
  if (!is_init()) return;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(signal, end_by_signal);
  }
}

// waitid() reports the same known child until its owner reaps it; orphans behind it wait until then.
void collect_orphans(const std::function<bool(pid_t)>& is_known) {
  siginfo_t news{};
  while (::waitid(P_ALL, 0, &news, WEXITED | WNOHANG | WNOWAIT) == 0 && news.si_pid != 0 && !is_known(news.si_pid)) {
    ::waitpid(news.si_pid, nullptr, WNOHANG);
    news = {};
  }
}

double seconds_since_process_start() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double uptime = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  static const double started =
      static_cast<double>(start_ticks_of(::getpid()).value_or(0)) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return uptime - started;
}

void mend_inheritance() {
  int descriptor = 0;  // open() returns the lowest free number
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = ::open("/dev/null", O_RDWR);
  if (descriptor > STDERR_FILENO) ::close(descriptor);
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);  // a write past the size limit then fails, as on a full disk
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace gputrain
