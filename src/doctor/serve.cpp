#include <poll.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/doctor/hosts.hpp"
#include "gputrain/doctor/rates.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/job/shared_mark.hpp"
#include "network_rate.hpp"

namespace gputrain::doctor {
namespace {

std::string plain(double number) {
  std::ostringstream text;
  text << std::fixed << number;
  return text.str();
}

std::string time_now() {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return plain(now.count());
}

std::string rest_of(std::istream& words) {
  std::string rest;
  std::getline(words >> std::ws, rest);
  return rest;
}

class Answers {
 public:
  explicit Answers(const BestRates& best) : best_(best) {}

  /// Throws Error.
  std::string to(const std::string& line) {
    std::istringstream words(line);
    std::string question;
    words >> question;
    if (question == "time") return time_now();
    if (question == "disk") return disk(rest_of(words));
    if (question == "bench") return bench(words);
    if (question == "mark") return mark(rest_of(words));
    if (question == "see") return see(words);
    std::string address;
    uint16_t port = 0;
    words >> address >> port;
    if (question == "listen") {
      listening_.push_back(std::make_unique<comm::ListeningSocket>(address, uint16_t{0}));
      return std::to_string(listening_.back()->port());
    }
    if (question == "reach") return Descriptor(connect_within(address, port, 3)).get() >= 0 ? "ok" : "no";
    if (question == "take") {
      drains_.push_back(std::make_unique<Drain>(address));
      return std::to_string(drains_.back()->port());
    }
    return question == "send" ? plain(send_rate(address, port)) : "not understood";
  }

 private:
  static std::string disk(const std::string& folder) {
    std::error_code unknown;
    return std::filesystem::is_directory(folder, unknown) ? plain(write_speed(folder)) : "no such folder";
  }
  std::string mark(const std::string& folder) {
    mark_ = app::SharedMark(folder);
    return mark_.place().empty() ? "no mark" : mark_.place();
  }
  static std::string see(std::istream& words) {
    std::string place;
    words >> place;
    return app::shows_mark(rest_of(words), place) ? "ok" : "no";
  }
  std::string bench(std::istream& words) const {
    RatesRequest request;
    words >> request.device >> request.least_percent;
    request.folder = app::existing_part_of(rest_of(words));
    const launch::MachineRates rates = measure_rates(request, best_);
    best_.keep(rates);
    return to_json(rates).dump();
  }

  const BestRates& best_;
  std::vector<std::unique_ptr<comm::ListeningSocket>> listening_;  // until the end
  std::vector<std::unique_ptr<Drain>> drains_;
  app::SharedMark mark_;
};

}  // namespace

void serve(const std::string& report, const BestRates& best) {
  std::cout << report << std::endl;
  Answers answers(best);
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << answers.to(line) << std::endl;
    } catch (const Error& error) {
      std::cout << error.parts().what << std::endl;
    }
  }
}

}  // namespace gputrain::doctor
