// Sockets of the HTTP server and its clients.
#include <cerrno>
#include <cstring>
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

/// A path of a socket may have 107 bytes; that of its folder's descriptor is short.
class SocketPath {
 public:
  explicit SocketPath(const fs::path& path)
      : folder_(::open(path.has_parent_path() ? path.parent_path().c_str() : ".", O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    if (folder_.get() < 0) fail("cannot open the folder", errno, path.parent_path().string());
    const std::string text = "/proc/self/fd/" + std::to_string(folder_.get()) + "/" + path.filename().string();
    if (text.size() >= sizeof address_.sun_path) fail("the name is too long", ENAMETOOLONG, path.string());
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path, text.c_str(), text.size() + 1);
  }

  const char* text() const noexcept { return address_.sun_path; }
  const sockaddr* address() const noexcept { return reinterpret_cast<const sockaddr*>(&address_); }
  static constexpr socklen_t kSize = sizeof(sockaddr_un);

 private:
  Descriptor folder_;
  sockaddr_un address_{};
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

std::string send_and_receive(int socket, const std::string& text, double seconds, const std::string& where) {
  if (::send(socket, text.data(), text.size(), MSG_NOSIGNAL) < 0) fail("cannot ask", errno, where);
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::string all;
  while (true) {
    Poll poll;
    poll.add(socket);
    poll.wake_at(until);
    poll.wait();
    if (!poll.is_ready(socket)) {
      if (Clock::now() < until) continue;
      throw Error(ExitCode::environment, {.what = "no answer", .where = where});
    }
    char buffer[16384];
    const ssize_t count = ::recv(socket, buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return all;
    all.append(buffer, static_cast<size_t>(count));
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

Listener listen_at(const fs::path& path) {
  const SocketPath short_path(path);
  auto socket = std::make_unique<Descriptor>(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Descriptor client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(client.get(), short_path.address(), SocketPath::kSize) == 0) fail("in use", EADDRINUSE, path.string());
  if (errno == ECONNREFUSED) ::unlink(short_path.text());  // of a process that was killed
  if (::fchmod(socket->get(), S_IRUSR | S_IWUSR) != 0 ||
      ::bind(socket->get(), short_path.address(), SocketPath::kSize) != 0 || ::listen(socket->get(), SOMAXCONN) != 0)
    fail("cannot listen", errno, path.string());
  return {.socket = std::move(socket), .port = 0};
}

HttpAnswer ask(const fs::path& path, const HttpRequest& request, double seconds) {
  const SocketPath short_path(path);
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), short_path.address(), SocketPath::kSize) != 0)
    fail("no run answers", errno, path.string());
  return exchanged(socket.get(), request, seconds, path.string());
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
