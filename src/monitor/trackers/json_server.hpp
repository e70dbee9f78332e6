// Server that takes and gives JSON over HTTP, as trackers ask it.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/core/process.hpp"
#include "gputrain/net/client.hpp"

namespace gputrain::monitor {

/// Returns whether a text is an address that begins with http:// or https://.
bool is_server_address(const std::string& uri);

std::string percent_encoded(const std::string& text);

/// Returns a variable, or `otherwise` if it is unset or empty.
std::string environment_or(const Lookup& lookup, const char* name, const std::string& otherwise);

/// Returns the text at a JSON pointer; nothing if there is none.
std::optional<std::string> text_if_at(const nlohmann::json& answer, const char* place);

/// Pauses between tries, which become longer until one succeeds.
class Pauses {
 public:
  using Clock = std::chrono::steady_clock;

  bool are_over() const { return Clock::now() >= next_try_; }
  void end() { pause_ = kFirst; }
  void begin() {
    next_try_ = Clock::now() + pause_;
    pause_ = std::min(2 * pause_, kMost);
  }

 private:
  static constexpr std::chrono::seconds kFirst{5}, kMost{60};

  Clock::time_point next_try_{};
  std::chrono::seconds pause_ = kFirst;
};

/// Client whose calls throw net::Interruption if they may succeed later, and Error(environment) if the server refuses
/// them. A call takes ten seconds at most. No message contains a secret.
class JsonServer {
 public:
  /// `name`: what should answer at the address. `authorization`: the header's value; empty: none.
  JsonServer(std::string name, std::string address, std::string authorization)
      : name_(std::move(name)), address_(std::move(address)), authorization_(std::move(authorization)) {}

  /// Returns the answer to a request for a path below the address, an object; nothing for 404.
  std::optional<nlohmann::json> send(const std::string& path, net::Request request);
  std::optional<nlohmann::json> post(const std::string& path, const nlohmann::json& content);

  /// Throws the refusal.
  [[noreturn]] void fail(const std::string& what) const;

  /// Limits the seconds of each further call.
  void hurry(std::chrono::seconds most) { most_ = most; }

 private:
  std::string name_, address_, authorization_;
  net::Client client_;
  std::chrono::seconds most_{10};
};

}  // namespace gputrain::monitor
