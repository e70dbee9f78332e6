// Makes requests again that were interrupted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "gputrain/hub/fetch.hpp"
#include "gputrain/hub/http.hpp"

namespace gputrain::hub {

/// Calls `action` until it throws no Interruption, kTries times in a row without progress at most, with a pause before
/// each that doubles. `progress` grows when something was received. Throws Error(environment) with the last reason.
class Retries {
 public:
  static constexpr int kTries = 5;

  Retries(std::string url, const Fetching& how) : url_(std::move(url)), how_(how) {}

  void run(const std::function<void()>& action, const std::function<uint64_t()>& progress = {});

 private:
  void wait(int failures, const std::string& why) const;

  std::string url_;
  const Fetching& how_;
};

/// http.ask() with retries, for requests whose answers are small.
Reply ask_patiently(Http& http, const HttpRequest& request, const Fetching& how);

}  // namespace gputrain::hub
