// Requests and answers of HTTP, as client and server know them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace gputrain::net {

class Cancellation;

struct LessWithoutCase {
  bool operator()(const std::string& one, const std::string& other) const noexcept;
};

/// Names are the same in upper and lower case.
struct Headers : std::map<std::string, std::string, LessWithoutCase> {
  using map::map;

  /// Empty if there is none.
  std::string get(const std::string& name) const;
  /// Takes a line "Name: value", ignores others.
  void read(std::string_view line);
};

struct Response {
  int status = 200;
  Headers headers = {};
  std::string body = {};      // of an error, or without a `receive`
  std::string url = {};       // where the answer came from
  std::string location = {};  // of a redirect; else empty

  bool is_redirect() const { return status >= 300 && status < 400 && !location.empty(); }
};

/// When a request is given up; 0: never.
struct Limits {
  std::chrono::milliseconds connect{30'000};
  std::chrono::seconds silent{60};  // without a byte
  std::chrono::milliseconds total{0};
  size_t bytes = size_t{64} << 20;  // of a body that is kept in memory
};

struct Request {
  std::string method = "GET";  // a client takes GET, HEAD, POST and PUT
  std::string url = {};        // a server gets the part after the host: "/state?after=3"
  Headers headers = {};        // a client sends them to the host of `url` alone, never to one that it redirects to
  std::string body = {};

  // How a client sends it.
  uint64_t from = 0;          // the first byte that is asked for
  bool may_use_proxy = true;  // the environment's
  Limits limits = {};
  const Cancellation* cancellation = nullptr;
  /// The abstract name of a local socket to ask instead of the host of `url`. Only this user and root may answer there.
  std::string local_socket = {};
  /// Takes the content as it comes; `response` has status 200 or 206 and the headers.
  std::function<void(const Response& response, std::string_view bytes)> receive = {};

  std::string path() const { return url.substr(0, url.find('?')); }
  std::string query() const;
};

enum class Parsed { incomplete, whole, wrong };

/// Reads a request of at most 64 KiB.
Parsed parse(const std::string& text, Request& request);

/// An answer as text, after which the connection ends. To HEAD, it has no body.
std::string text_of(const Response& response, bool has_body);

}  // namespace gputrain::net
