// A small HTTP server for the run's own pages: a TCP port, or a socket in a folder.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "gputrain/core/descriptor.hpp"

namespace gputrain::monitor {

struct HttpRequest {
  std::string method, path, query, body;  // "GET", "/state", "after=3"
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
};

/// A listening socket.
struct Listener {
  std::unique_ptr<Descriptor> socket;
  int port = 0;
};
/// At a numeric address of this host; port 0 takes a free one. Throws Error(environment) if it cannot.
Listener listen_on(const std::string& address, int port);
/// A socket in the file system for this user alone; replaces one that nobody answers at. The path may be long.
Listener listen_at(const std::filesystem::path& path);

/// Answers requests one after the other in a thread of its own, until it is destroyed. A client that is slow, that
/// sends too much or that leaves does not hold up the others.
class HttpServer {
 public:
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  HttpServer(Listener listener, Handler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  int port() const noexcept { return port_; }

 private:
  void run(int listener);

  Handler handler_;
  int port_;
  Descriptor wake_;  // an eventfd that ends the thread
  std::thread thread_;
};

/// Asks a server; for `gputrain top` and `gputrain ctl`. Throws Error(environment) if there is no answer in `seconds`.
HttpAnswer ask(const std::filesystem::path& socket, const HttpRequest& request, double seconds = 10);
HttpAnswer ask(const std::string& host, int port, const HttpRequest& request, double seconds = 10);

}  // namespace gputrain::monitor
