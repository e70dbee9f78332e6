// One HTTP exchange with a metadata service: plain TCP to a numeric address, limited in time and bytes, and cancelled
// at once on request. No name lookup, proxy, redirect or reused connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace gputrain::cloud {

struct Endpoint {
  std::string address;  // numeric IPv4
  uint16_t port = 80;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

struct HttpRequest {
  std::string_view method;  // GET, or PUT with an empty body
  std::string_view path;    // with its query
  std::string header;       // "Name: value" without line end; empty: none
};

struct HttpReply {
  int status = 0;
  std::string headers;  // "name: value" lines, names in lower case, each ended by \n
  std::string body;

  /// The value of the first header with that name (lower case); empty if there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpLimits {
  double connect_seconds = 1;
  double total_seconds = 2;  // connecting included
  size_t bytes = 64 * 1024;  // of the whole answer
};

/// Why there is no answer.
struct HttpFailure {
  enum class Kind {
    unreachable,  // no connection: nothing answers at that address
    broken,       // a connection, but late, reset, too large or not HTTP
    cancelled,    // by the caller
  };
  Kind kind = Kind::broken;
  std::string reason;
};

using HttpResult = std::variant<HttpReply, HttpFailure>;

/// Lets another thread end a wait at once; later waits end at once too.
class Cancellation {
 public:
  Cancellation();  // throws Error(environment) when the process has no descriptor left
  ~Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  void cancel() noexcept;
  /// Waits for this time; returns true as soon as it is cancelled.
  bool wait(double seconds) const noexcept;
  int descriptor() const noexcept { return descriptor_; }  // readable once cancelled

 private:
  int descriptor_;
};

HttpResult exchange(const Endpoint& endpoint, const HttpRequest& request, const HttpLimits& limits,
                    const Cancellation& cancellation);

/// Parses what has arrived of an answer. `ended`: the other side has closed the connection.
enum class Arrival { incomplete, complete, malformed };
Arrival read_reply(std::string_view bytes, bool ended, HttpReply& reply);

}  // namespace gputrain::cloud
