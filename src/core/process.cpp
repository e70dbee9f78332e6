#include "gputrain/core/process.hpp"

#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace gputrain {
namespace {

/// Start of this process in clock ticks since boot: field 22 of /proc/self/stat, counted after the ")" of the name.
double start_ticks() {
  std::ifstream file("/proc/self/stat");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  return std::stod(field);
}

}  // namespace

double seconds_since_process_start() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double uptime = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  static const double started = start_ticks() / static_cast<double>(sysconf(_SC_CLK_TCK));
  return uptime - started;
}

}  // namespace gputrain
