// TCP ports on this machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gputrain::testing {

/// A port that is free at the moment, and that neither the kernel hands out (32768 and up) nor a launcher derives from
/// a job id (20000 to 29999). Each process begins its search elsewhere, because tests run in parallel.
inline int free_port() {
  constexpr int kFirst = 10000, kPorts = 10000;
  static int next = static_cast<int>(::getpid()) * 97 % kPorts;
  for (int tries = 0; tries < kPorts; ++tries) {
    const int port = kFirst + next++ % kPorts;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_free = ::bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(probe);
    if (is_free) return port;
  }
  throw std::runtime_error("no free port");
}

/// Whether a process on this machine listens on a port, from the kernel's tables.
inline bool is_open(int port) {
  const std::string end = fmt::format(":{:04X}", port);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream fields(line);
      std::string number, local, remote, state;
      fields >> number >> local >> remote >> state;
      if (local.ends_with(end) && state == "0A") return true;
    }
  }
  return false;
}

/// Waits until the port is open; false after a minute.
inline bool becomes_open(int port) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!is_open(port)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // polls: the kernel sends no event
  }
  return true;
}

}  // namespace gputrain::testing
