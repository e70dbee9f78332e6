#include "http.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <system_error>
#include <utility>

#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"

namespace gputrain::cloud {
namespace {

using Clock = std::chrono::steady_clock;
using Failed = HttpFailure::Kind;

std::string reason_of(int error) { return std::system_category().message(error); }

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::optional<size_t> whole_number(std::string_view digits, int base) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

enum class Waited { ready, late, cancelled };

/// Waits until `descriptor` (negative: none) is ready, the time is over, or the wait is cancelled.
Waited wait_for(int descriptor, short events, Clock::time_point until, const Cancellation& cancellation) {
  for (;;) {
    std::array<pollfd, 2> waiting{{{cancellation.descriptor(), POLLIN, 0}, {descriptor, events, 0}}};
    const double left = std::chrono::duration<double, std::milli>(until - Clock::now()).count();
    const double bounded = std::clamp(std::ceil(left), 0.0, 1e9);
    const int ready = ::poll(waiting.data(), waiting.size(), static_cast<int>(bounded));
    if (ready > 0 && waiting[0].revents != 0) return Waited::cancelled;
    if (ready < 0 && errno != EINTR) return Waited::late;
    if (Clock::now() >= until) return Waited::late;  // also if a byte arrives now and then
    if (ready > 0) return Waited::ready;
  }
}

/// One connection. Errors are thrown as HttpFailure, which never leaves exchange().
class Connection {
 public:
  Connection(const Endpoint& endpoint, const HttpLimits& limits, const Cancellation& cancellation)
      : limits_(limits),
        cancellation_(cancellation),
        until_(after(limits.total_seconds)),
        socket_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    if (socket_.get() < 0) throw HttpFailure{Failed::broken, reason_of(errno)};
    connect(endpoint);
  }

  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        text.remove_prefix(static_cast<size_t>(sent));
      } else if (errno == EAGAIN) {
        wait(POLLOUT, until_, Failed::broken);
      } else if (errno != EINTR) {
        throw HttpFailure{Failed::broken, reason_of(errno)};
      }
    }
  }

  HttpReply receive() {
    std::string bytes;
    HttpReply reply;
    std::array<char, 4096> part{};
    for (;;) {
      wait(POLLIN, until_, Failed::broken);
      const ssize_t got = ::recv(socket_.get(), part.data(), part.size(), 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got < 0) throw HttpFailure{Failed::broken, reason_of(errno)};
      bytes.append(part.data(), static_cast<size_t>(got));
      if (bytes.size() > limits_.bytes) throw HttpFailure{Failed::broken, "the answer is too large"};
      const Arrival arrival = read_reply(bytes, got == 0, reply);
      if (arrival == Arrival::complete) return reply;
      if (arrival == Arrival::malformed) throw HttpFailure{Failed::broken, "the answer is cut short or not HTTP"};
    }
  }

 private:
  void connect(const Endpoint& endpoint) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(endpoint.port);
    if (::inet_pton(AF_INET, endpoint.address.c_str(), &to.sin_addr) != 1) {
      throw HttpFailure{Failed::unreachable, "not a numeric address"};
    }
    if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return;
    if (errno != EINPROGRESS) throw HttpFailure{Failed::unreachable, reason_of(errno)};
    wait(POLLOUT, std::min(until_, after(limits_.connect_seconds)), Failed::unreachable);
    int error = 0;
    socklen_t length = sizeof error;
    if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) throw HttpFailure{Failed::unreachable, reason_of(error)};
  }

  void wait(short events, Clock::time_point until, Failed when_late) const {
    const Waited waited = wait_for(socket_.get(), events, until, cancellation_);
    if (waited == Waited::cancelled) throw HttpFailure{Failed::cancelled, "given up"};
    if (waited == Waited::late) throw HttpFailure{when_late, "no answer in time"};
  }

  const HttpLimits& limits_;
  const Cancellation& cancellation_;
  Clock::time_point until_;
  Descriptor socket_;
};

std::string text_of(const HttpRequest& request, const Endpoint& endpoint) {
  std::string text = std::string(request.method) + " " + std::string(request.path) + " HTTP/1.1\r\n";
  text += "Host: " + endpoint.address + (endpoint.port == 80 ? "" : ":" + std::to_string(endpoint.port)) + "\r\n";
  if (!request.header.empty()) text += request.header + "\r\n";
  if (request.method == "PUT") text += "Content-Length: 0\r\n";
  return text + "User-Agent: gputrain\r\nAccept: */*\r\nConnection: close\r\n\r\n";
}

/// Removes and returns the text before the next line end; empty if there is none.
std::optional<std::string_view> take_line(std::string_view& text) {
  const auto end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

Arrival read_status(std::string_view line, int& status) {
  constexpr size_t kVersionLength = std::string_view("HTTP/1.1 ").size();
  if (!line.starts_with("HTTP/1.") || line.size() < kVersionLength + 3) return Arrival::malformed;
  const auto number = whole_number(line.substr(kVersionLength, 3), 10);
  if (!number || *number < 200 || *number > 599) return Arrival::malformed;
  status = static_cast<int>(*number);
  return Arrival::complete;
}

Arrival read_chunks(std::string_view rest, std::string& body) {
  body.clear();
  for (;;) {
    const auto line = take_line(rest);
    if (!line) return Arrival::incomplete;
    const auto size = whole_number(trimmed(line->substr(0, line->find(';'))), 16);
    if (!size) return Arrival::malformed;
    if (*size == 0) return Arrival::complete;  // ignore trailers
    if (rest.size() < *size) return Arrival::incomplete;
    body += rest.substr(0, *size);
    rest.remove_prefix(*size);
    const auto end = take_line(rest);
    if (!end) return rest.size() > 2 ? Arrival::malformed : Arrival::incomplete;
    if (!end->empty()) return Arrival::malformed;
  }
}

Arrival read_body(std::string_view rest, bool ended, HttpReply& reply) {
  if (reply.status == 204 || reply.status == 304) return Arrival::complete;
  if (lower_case(reply.header("transfer-encoding")) == "chunked") return read_chunks(rest, reply.body);
  const std::string_view length = reply.header("content-length");
  if (length.empty()) {
    reply.body = rest;
    return ended ? Arrival::complete : Arrival::incomplete;
  }
  const auto bytes = whole_number(length, 10);
  if (!bytes) return Arrival::malformed;
  if (rest.size() < *bytes) return Arrival::incomplete;
  reply.body = rest.substr(0, *bytes);
  return Arrival::complete;
}

}  // namespace

std::string_view HttpReply::header(std::string_view name) const {
  std::string_view rest = headers;
  while (const auto line = take_line(rest)) {
    if (line->starts_with(name) && line->substr(name.size()).starts_with(':')) {
      return trimmed(line->substr(name.size() + 1));
    }
  }
  return {};
}

Cancellation::Cancellation() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) {
    throw Error(ExitCode::environment, {.what = "no event descriptor: " + reason_of(errno),
                                        .hint = "raise the limit of open files (ulimit -n)"});
  }
}

Cancellation::~Cancellation() { ::close(descriptor_); }

void Cancellation::cancel() noexcept { ::eventfd_write(descriptor_, 1); }

bool Cancellation::wait(double seconds) const noexcept {
  return wait_for(-1, 0, after(seconds), *this) == Waited::cancelled;
}

HttpResult exchange(const Endpoint& endpoint, const HttpRequest& request, const HttpLimits& limits,
                    const Cancellation& cancellation) {
  try {
    Connection connection(endpoint, limits, cancellation);
    connection.send(text_of(request, endpoint));
    return connection.receive();
  } catch (HttpFailure& failure) {
    return std::move(failure);
  }
}

Arrival read_reply(std::string_view bytes, bool ended, HttpReply& reply) {
  constexpr std::string_view kStart = "HTTP/1.";
  const size_t seen = std::min(bytes.size(), kStart.size());
  if (bytes.substr(0, seen) != kStart.substr(0, seen)) return Arrival::malformed;
  std::string_view rest = bytes;
  const auto unfinished = ended ? Arrival::malformed : Arrival::incomplete;
  const auto status_line = take_line(rest);
  if (!status_line) return unfinished;
  if (read_status(*status_line, reply.status) == Arrival::malformed) return Arrival::malformed;
  reply.headers.clear();
  for (;;) {
    const auto line = take_line(rest);
    if (!line) return unfinished;
    if (line->empty()) break;
    const auto colon = line->find(':');
    if (colon == std::string_view::npos) return Arrival::malformed;
    reply.headers += lower_case(line->substr(0, colon)) + std::string(line->substr(colon)) + '\n';
  }
  const Arrival arrival = read_body(rest, ended, reply);
  return arrival == Arrival::incomplete ? unfinished : arrival;
}

}  // namespace gputrain::cloud
