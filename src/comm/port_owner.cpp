#include "port_owner.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>

#include "gputrain/core/secrets.hpp"

namespace gputrain::comm {
namespace {

namespace fs = std::filesystem;

/// Finds the inode of the socket that listens on the port in the kernel's tables: "local remote state ... inode".
std::optional<std::string> listening_inode(uint16_t port) {
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // the heading
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      const size_t colon = local.rfind(':');
      constexpr int kHexadecimal = 16;
      const bool is_port =
          colon != std::string::npos && std::strtoul(local.c_str() + colon + 1, nullptr, kHexadecimal) == port;
      if (is_port && state == "0A" && !inode.empty()) return inode;
    }
  }
  return std::nullopt;
}

bool holds_socket(const fs::path& process, const std::string& inode) {
  std::error_code denied;
  for (fs::directory_iterator entry(process / "fd", denied), end; !denied && entry != end; entry.increment(denied)) {
    std::error_code gone;
    if (fs::read_symlink(entry->path(), gone) == "socket:[" + inode + "]") return true;
  }
  return false;
}

/// Returns the command line of a process, shortened, with only printable characters.
std::string command_of(const fs::path& process) {
  constexpr size_t kLongest = 100;
  std::ifstream file(process / "cmdline", std::ios::binary);
  std::string command{std::istreambuf_iterator<char>(file), {}};
  while (!command.empty() && command.back() == '\0') command.pop_back();
  command = with_starred_secrets(command);
  std::ranges::replace(command, '\0', ' ');
  std::ranges::replace_if(
      command, [](char c) { return c < ' ' || c > '~'; }, '?');
  return command.size() <= kLongest ? command : command.substr(0, kLongest) + "...";
}

bool is_number(const std::string& text) {
  return std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

std::string port_owner(uint16_t port) {
  const auto inode = listening_inode(port);
  if (!inode) return {};
  std::error_code gone;
  for (fs::directory_iterator entry("/proc", gone), end; !gone && entry != end; entry.increment(gone)) {
    const std::string name = entry->path().filename();
    if (is_number(name) && holds_socket(entry->path(), *inode))
      return "process " + name + ", " + command_of(entry->path());
  }
  return {};
}

}  // namespace gputrain::comm
