// A small HTTP server for the run's own pages: a TCP port, or a socket that belongs to a folder.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "gputrain/core/descriptor.hpp"
#include "gputrain/net/cancellation.hpp"
#include "gputrain/net/message.hpp"

namespace gputrain::net {

/// Returns whether a client that asks under this host means this machine by a numeric address or as localhost. Any web
/// site may have its own name resolve to this machine, and then read what the site's visitor is answered.
bool is_local_host(const std::string& host);

/// A listening socket.
struct Listener {
  std::unique_ptr<Descriptor> socket;
  int port = 0;
  bool is_private = false;  // takes connections of this user's processes alone, and of root's
};
/// At a numeric address of this host; port 0 takes a free one. Throws Error(environment) if it cannot.
Listener listen_on(const std::string& address, int port);
/// For this user's processes on this host, which find it by the folder. Throws Error(environment) if another process
/// listens for the folder already.
Listener listen_for(const std::filesystem::path& folder);
/// Returns whether the other end of a local socket is a process of this user or of root.
bool is_own_process(int socket);

/// Answers requests one after the other in a thread of its own, until it is destroyed. A client that is slow, that
/// sends too much or that leaves does not hold up the others; if there are many, those without a whole request go.
class Server {
 public:
  using Handler = std::function<Response(const Request&)>;

  Server(Listener listener, Handler handler);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();

  int port() const noexcept { return port_; }

 private:
  void run(int listener);

  Handler handler_;
  int port_;
  bool is_private_;
  Cancellation end_;
  std::thread thread_;
};

/// Asks the server of a run; `request.url`: what follows the host. Throws Error(environment) if there is no answer in
/// this time.
Response ask(const std::filesystem::path& folder, Request request,
             std::chrono::milliseconds most = std::chrono::seconds(10));
Response ask(const std::string& host, int port, Request request,
             std::chrono::milliseconds most = std::chrono::seconds(10));

}  // namespace gputrain::net
