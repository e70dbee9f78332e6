// Where a run listens, and who asks it there.
#include <cerrno>
#include <cstddef>
#include <system_error>
#include <utility>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/net/client.hpp"
#include "gputrain/net/server.hpp"

namespace gputrain::net {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what, int error, const std::string& where) {
  throw Error(ExitCode::environment, {.what = what + ": " + std::generic_category().message(error), .where = where});
}

/// The name of a folder's socket, which is no file: nothing of it is left when its process ends, and the folder's path
/// may be long. Whoever names the folder, by whatever path, means the same one.
std::string socket_name(const fs::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0 || ::access(folder.c_str(), X_OK) != 0)
    fail("cannot open the folder", errno, folder.string());
  return "gputrain/" + std::to_string(::geteuid()) + "/" + std::to_string(status.st_dev) + "-" +
         std::to_string(status.st_ino);
}

/// Sends a request to a run at `where`; `place` and `hint` are for the error that says why none answers.
Response answer_to(Request request, std::chrono::milliseconds most, const std::string& where,
                   const std::string& place = {}, const std::string& hint = {}) {
  request.may_use_proxy = false;
  request.limits.total = most;
  try {
    return curl_transport()->send(request);
  } catch (const std::exception& failure) {
    throw Error(ExitCode::environment,
                {.what = "no run answers" + place + ": " + reason_of(failure), .where = where, .hint = hint});
  }
}

}  // namespace

Listener listen_on(const std::string& address, int port) {
  comm::ListeningSocket listening(address, static_cast<uint16_t>(port));
  const int bound = listening.port();
  return {.socket = std::make_unique<Descriptor>(listening.release()), .port = bound};
}

Listener listen_for(const fs::path& folder) {
  const std::string name = socket_name(folder);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);  // after a zero: a name, not a path
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  auto socket = std::make_unique<Descriptor>(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(socket->get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket->get(), SOMAXCONN) != 0)
    fail("cannot listen", errno, folder.string());
  return {.socket = std::move(socket), .port = 0, .is_private = true};
}

bool is_own_process(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == ::geteuid() || peer.uid == 0);
}

Response ask(const fs::path& folder, Request request, std::chrono::milliseconds most) {
  request.url = "http://localhost" + request.url;
  request.local_socket = socket_name(folder);
  return answer_to(std::move(request), most, folder.string(), " in this folder",
                   "ask on the host of rank 0, as the same user, while the run goes on");
}

Response ask(const std::string& host, int port, Request request, std::chrono::milliseconds most) {
  const bool is_bare_ipv6 = host.find(':') != host.npos && !host.starts_with('[');
  const std::string where = (is_bare_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
  request.url = "http://" + where + request.url;
  request.headers["Host"] = "localhost";
  return answer_to(std::move(request), most, where);
}

}  // namespace gputrain::net
