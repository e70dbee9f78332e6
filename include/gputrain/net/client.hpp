// Asks servers over HTTP and HTTPS.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "gputrain/net/message.hpp"

namespace gputrain::net {

/// A request that may succeed if it is made again: the connection broke, or the server is busy.
struct Interruption : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// The server answers that it is busy: a status such as 429 or 503.
struct Busy : Interruption {
  using Interruption::Interruption;
};
/// There was no connection: nothing has been sent.
struct Unreachable : Interruption {
  using Interruption::Interruption;
};

/// What went wrong, without place and hint.
std::string reason_of(const std::exception& failure);

/// Sends a request, and follows no redirect.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Any status is an answer. Throws Interruption, or Error(environment) where no further try helps and after a
  /// cancellation. What `receive` throws passes through.
  virtual Response send(const Request& request) = 0;
};

/// libcurl. Keeps connections open. One thread at a time may use it.
std::unique_ptr<Transport> curl_transport();

/// Makes requests again that were interrupted.
struct Retrying {
  static constexpr int kTries = 5;

  double first_pause_seconds = 0.5;                                 // before a second try; doubles from try to try
  std::function<void(const std::string& trouble)> on_trouble = {};  // before another try
  std::string hint = {};                                            // what the user may try after the last

  /// Calls `action` until it throws no Interruption, kTries times in a row without progress at most. `progress` grows
  /// when something was received. Throws Error(environment) with the last reason.
  void run(const std::string& url, const std::function<void()>& action,
           const std::function<uint64_t()>& progress = {}) const;

 private:
  void wait(const std::string& url, int failures, const std::string& why) const;
};

class Client {
 public:
  explicit Client(std::unique_ptr<Transport> transport = curl_transport()) : transport_(std::move(transport)) {}

  /// As the transport, but follows redirects, to another host only those of GET; throws Busy for the
  /// answer of a busy server.
  Response ask(const Request& request);
  Response ask(const Request& request, const Retrying& retrying);

 private:
  std::unique_ptr<Transport> transport_;
};

}  // namespace gputrain::net
