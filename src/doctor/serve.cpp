#include <poll.h>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/doctor/hosts.hpp"

namespace gputrain::doctor {
namespace {

std::string time_now() {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::ostringstream text;
  text << std::fixed << now.count();
  return text.str();
}

std::string reach(const std::string& address, uint16_t port) {
  constexpr std::chrono::seconds kConnectTime{3};
  const Descriptor socket(comm::begin_connecting(address, port));
  if (socket.get() < 0) return "no route";
  Poll poll;
  poll.add(socket.get(), POLLOUT);
  poll.wake_at(Clock::now() + kConnectTime);
  poll.wait();
  if (!poll.is_ready(socket.get())) return "no answer in 3 s";
  const std::string failure = comm::connecting_failure(socket.get());
  return failure.empty() ? "ok" : failure;
}

}  // namespace

void serve(const std::string& report) {
  std::cout << report << std::endl;
  std::vector<std::unique_ptr<comm::ListeningSocket>> listening;  // until the end
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string question, address;
    uint16_t port = 0;
    words >> question >> address >> port;
    try {
      if (question == "time") {
        std::cout << time_now() << std::endl;
      } else if (question == "listen") {
        listening.push_back(std::make_unique<comm::ListeningSocket>(address, uint16_t{0}));
        std::cout << listening.back()->port() << std::endl;
      } else {
        std::cout << (question == "reach" ? reach(address, port) : "not understood") << std::endl;
      }
    } catch (const Error& error) {
      std::cout << error.parts().what << std::endl;
    }
  }
}

}  // namespace gputrain::doctor
