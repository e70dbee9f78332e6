#include "job_processes.hpp"

#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include <unistd.h>

namespace torture {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<pid_t> others_of(const std::string& log) {
  const std::string mark = "FAULTS_LOG=" + log + '\0';
  std::vector<pid_t> others;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    pid_t id = 0;
    const bool is_process = std::from_chars(name.data(), name.data() + name.size(), id).ec == std::errc();
    if (is_process && id != ::getpid() && read(entry.path() / "environ").find(mark) != std::string::npos)
      others.push_back(id);
  }
  return others;
}

/// Stopped, or no longer there.
bool stands_still(pid_t id) {
  const std::string status = read("/proc/" + std::to_string(id) + "/stat");
  const size_t name_end = status.rfind(") ");
  return name_end == std::string::npos || std::string("TtZX").find(status[name_end + 2]) != std::string::npos;
}

}  // namespace

void freeze_others(const std::string& log) {
  const std::vector<pid_t> others = others_of(log);
  for (const pid_t id : others) ::kill(id, SIGSTOP);
  for (const pid_t id : others) {
    while (!stands_still(id)) ::usleep(100);
  }
}

void kill_others(const std::string& log) {
  for (const pid_t id : others_of(log)) ::kill(id, SIGKILL);
}

}  // namespace torture
