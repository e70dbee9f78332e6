// Requests over HTTP and HTTPS, with libcurl.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gputrain::hub {

/// A request that may succeed if it is made again: the connection broke, or the server is busy.
struct Interruption : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Reply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // of an error, or without a `receive`
  std::string url;                             // where the answer came from
  std::string location;                        // of a redirect that was not followed; else empty

  std::string header(const std::string& name) const;
  bool is_redirect() const { return status >= 300 && status < 400 && !location.empty(); }
};

/// Seconds after which a request is given up.
struct HttpLimits {
  long connect = 30;
  long silent = 60;  // without a byte
  long total = 0;    // 0: none
};

struct HttpRequest {
  std::string url;
  std::string token = {};                // sent to the host of `url` alone, never to one that it redirects to
  bool head = false;                     // only the headers; a redirect to another host is not followed
  uint64_t from = 0;                     // the first byte to send
  std::string json = {};                 // not empty: is posted; a redirect to another host is not followed
  std::string user = {}, password = {};  // go where the token goes
  HttpLimits limits = {};
  /// Takes the content as it comes; `reply` has status 200 or 206 and the headers.
  std::function<void(const Reply& reply, std::string_view bytes)> receive = {};
};

class Http {
 public:
  Http();
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  /// Follows redirects. Any status is an answer, except those of a busy server. Throws Interruption, or
  /// Error(environment) where no further try helps. What `receive` throws passes through.
  Reply ask(const HttpRequest& request);

 private:
  struct Handle;
  Reply ask_once(const HttpRequest& request, const std::string& url, bool with_token);

  std::unique_ptr<Handle> handle_;
};

}  // namespace gputrain::hub
