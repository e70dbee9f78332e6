// Sockets of the HTTP server and its clients.
#include <cerrno>
#include <cstddef>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "gputrain/comm/sockets.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/monitor/http_server.hpp"
#include "http_message.hpp"

namespace gputrain::monitor {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what, int error, const std::string& where) {
  throw Error(ExitCode::environment, {.what = what + ": " + std::generic_category().message(error), .where = where});
}

/// The address of a folder's socket, which is no file: nothing of it is left when its process ends, and the folder's
/// path may be long. Whoever names the folder, by whatever path, means the same one.
struct FolderAddress {
  explicit FolderAddress(const fs::path& folder) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) fail("cannot open the folder", errno, folder.string());
    const std::string name = "gputrain/" + std::to_string(::geteuid()) + "/" + std::to_string(status.st_dev) + "-" +
                             std::to_string(status.st_ino);
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);  // after a zero: a name, not a path
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size = 0;
};

struct Addresses {
  Addresses(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &first);
    if (status != 0)
      throw Error(ExitCode::environment,
                  {.what = "the address '" + host + "' is not known: " + ::gai_strerror(status)});
  }
  ~Addresses() { ::freeaddrinfo(first); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;

  addrinfo* first = nullptr;
};

constexpr size_t kLongestAnswer = size_t{64} << 20;

std::string send_and_receive(int socket, const std::string& text, double seconds, const std::string& where) {
  if (::send(socket, text.data(), text.size(), MSG_NOSIGNAL) < 0) fail("cannot ask", errno, where);
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::string all;
  while (true) {
    Poll poll;
    poll.add(socket);
    poll.wake_at(until);
    poll.wait();
    if (Clock::now() >= until) throw Error(ExitCode::environment, {.what = "no answer in time", .where = where});
    if (!poll.is_ready(socket)) continue;
    char buffer[16384];
    const ssize_t count = ::recv(socket, buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return all;
    all.append(buffer, static_cast<size_t>(count));
    if (all.size() > kLongestAnswer)
      throw Error(ExitCode::environment, {.what = "the answer is longer than any of a run", .where = where});
  }
}

HttpAnswer exchanged(int socket, const HttpRequest& request, double seconds, const std::string& where) {
  HttpAnswer answer;
  const std::string text = send_and_receive(socket, text_of(request, "localhost"), seconds, where);
  if (parse(text, /*is_ended=*/true, answer) != Parsed::whole)
    throw Error(ExitCode::environment, {.what = "the answer is not understood", .where = where});
  return answer;
}

}  // namespace

Listener listen_on(const std::string& address, int port) {
  comm::ListeningSocket listening(address, static_cast<uint16_t>(port));
  const int bound = listening.port();
  return {.socket = std::make_unique<Descriptor>(listening.release()), .port = bound};
}

Listener listen_for(const fs::path& folder) {
  const FolderAddress address(folder);
  auto socket = std::make_unique<Descriptor>(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(socket->get(), address.get(), address.size) != 0 || ::listen(socket->get(), SOMAXCONN) != 0)
    fail("cannot listen", errno, folder.string());
  return {.socket = std::move(socket), .port = 0, .is_private = true};
}

bool is_own_process(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == ::geteuid() || peer.uid == 0);
}

HttpAnswer ask(const fs::path& folder, const HttpRequest& request, double seconds) {
  const FolderAddress address(folder);
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), address.get(), address.size) != 0) fail("no run answers", errno, folder.string());
  if (!is_own_process(socket.get())) fail("the process that answers is another user's", EPERM, folder.string());
  return exchanged(socket.get(), request, seconds, folder.string());
}

HttpAnswer ask(const std::string& host, int port, const HttpRequest& request, double seconds) {
  const std::string where = host + ":" + std::to_string(port);
  const Addresses addresses(host, port);
  int error = 0;
  for (const addrinfo* one = addresses.first; one != nullptr; one = one->ai_next) {
    const Descriptor socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0)
      return exchanged(socket.get(), request, seconds, where);
    error = errno;
  }
  fail("no run answers", error, where);
}

}  // namespace gputrain::monitor
