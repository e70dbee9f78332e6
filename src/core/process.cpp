#include "gputrain/core/process.hpp"

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

namespace gputrain {
namespace {

/// Start time of this process in clock ticks since boot: field 22 of /proc/self/stat, counted after the ")" of the
/// name.
double start_ticks() {
  std::ifstream file("/proc/self/stat");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  return std::stod(field);
}

extern "C" void end_by_signal(int signal) { std::_Exit(128 + signal); }

}  // namespace

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
               .hint = "cd into a folder that exists, also where a new one has the same name"});
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
  static const double started = start_ticks() / static_cast<double>(sysconf(_SC_CLK_TCK));
  return uptime - started;
}

}  // namespace gputrain
