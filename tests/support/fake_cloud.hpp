// A fake metadata service of a cloud on loopback: as its documentation describes it, or misbehaving.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/sanitizers.hpp"

namespace gputrain::testing {

inline const std::vector<std::string> kClouds{"aws", "google", "azure", "alibaba", "tencent"};

/// A socket bound to loopback; until it listens, connections to its port are refused.
class LoopbackSocket {
 public:
  LoopbackSocket() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* place = reinterpret_cast<sockaddr*>(&address);
    if (descriptor_ < 0 || ::bind(descriptor_, place, length) != 0 || ::getsockname(descriptor_, place, &length) != 0) {
      throw std::runtime_error("no socket on the loopback");
    }
    port_ = ntohs(address.sin_port);
  }
  ~LoopbackSocket() { ::close(descriptor_); }
  LoopbackSocket(const LoopbackSocket&) = delete;
  LoopbackSocket& operator=(const LoopbackSocket&) = delete;

  int get() const { return descriptor_; }
  uint16_t port() const { return port_; }

 private:
  int descriptor_;
  uint16_t port_ = 0;
};

struct HttpAnswer {
  enum class Then { close, hang, reset, drip };
  std::string bytes;
  Then then = Then::close;
};

inline HttpAnswer http(int status, const std::string& body, const std::string& header = {}) {
  return {.bytes = "HTTP/1.1 " + std::to_string(status) + " Some Reason\r\nServer: fake\r\n" +
                   (header.empty() ? "" : header + "\r\n") + "Content-Length: " + std::to_string(body.size()) +
                   "\r\n\r\n" + body};
}
inline HttpAnswer silence() { return {.bytes = {}, .then = HttpAnswer::Then::hang}; }
inline HttpAnswer dripping() { return {.bytes = "HTTP/1.1 200 OK\r\n", .then = HttpAnswer::Then::drip}; }
inline HttpAnswer reset() { return {.bytes = {}, .then = HttpAnswer::Then::reset}; }

/// The time `seconds_from_now`, in a strftime format.
inline std::string moment(double seconds_from_now, const char* format) {
  const std::time_t when = std::time(nullptr) + static_cast<std::time_t>(seconds_from_now);
  std::tm parts{};
  ::gmtime_r(&when, &parts);
  char text[64] = {};
  std::strftime(text, sizeof text, format, &parts);
  return text;
}

/// A cloud's announcement that it takes the machine in `seconds`. Google's gives no time.
inline std::string announcement(const std::string& cloud, double seconds) {
  if (cloud == "aws") {
    return R"({"action": "terminate", "time": ")" + moment(seconds, "%Y-%m-%dT%H:%M:%SZ") + "\"}";
  }
  if (cloud == "google") return "TRUE";
  if (cloud == "azure") {
    return R"({"DocumentIncarnation": 2, "Events": [{"EventId": "602d9444-d2cd-49c7-8624-8643e7171297", )"
           R"("EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": ["trainer-7"], )"
           R"("EventStatus": "Scheduled", "NotBefore": ")" +
           moment(seconds, "%a, %d %b %Y %H:%M:%S GMT") + R"(", "Description": "", "EventSource": "Platform"}]})";
  }
  if (cloud == "alibaba") return moment(seconds, "%Y-%m-%dT%H:%M:%SZ");
  return moment(seconds + 8 * 3600, "%Y-%m-%d %H:%M:%S");  // Tencent uses China's time
}

class FakeCloud {
 public:
  explicit FakeCloud(std::string cloud) : cloud_(std::move(cloud)) {
    if (::listen(listening_.get(), 64) != 0) throw std::runtime_error("cannot listen");
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeCloud() {
    ::shutdown(listening_.get(), SHUT_RDWR);  // ends accept()
    thread_.join();
    for (const int connection : hanging_) ::close(connection);
  }
  FakeCloud(const FakeCloud&) = delete;
  FakeCloud& operator=(const FakeCloud&) = delete;

  uint16_t port() const { return listening_.port(); }
  /// The value for GPUTRAIN_METADATA_URL.
  std::string url() const { return cloud_ + "=http://127.0.0.1:" + std::to_string(port()); }

  /// Sets the answer to requests for a notice; empty: no notice.
  void announce(std::optional<std::string> body) { set(notice_, std::move(body)); }
  /// Sets a faulty answer to requests for a notice; empty: back to normal.
  void misbehave(std::optional<HttpAnswer> answer) { set(trouble_, std::move(answer)); }
  /// The same for the request that detects the cloud.
  void misbehave_when_probed(std::optional<HttpAnswer> answer) { set(probe_trouble_, std::move(answer)); }
  /// From now on accepts only this token.
  void change_token(const std::string& token) { set(token_, token); }
  /// For Google only.
  void announce_maintenance(const std::string& word) { set(maintenance_, word); }

  /// Waits for this many requests since the start; false on timeout.
  bool wait_for_requests(size_t count) {
    std::unique_lock lock(mutex_);
    return arrived_.wait_for(lock, patience(std::chrono::seconds(20)), [&] { return requests_.size() >= count; });
  }
  /// The headers of the requests so far.
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  template <class Field, class Value>
  void set(Field& field, Value value) {
    const std::lock_guard lock(mutex_);
    field = std::move(value);
  }

  void serve() {
    for (;;) {
      const int connection = ::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      const std::string request = head_of(connection);
      HttpAnswer answer = request.empty() ? HttpAnswer{} : answer_to(request);
      send(connection, answer.bytes);
      if (answer.then == HttpAnswer::Then::hang) {
        hanging_.push_back(connection);
        continue;
      }
      if (answer.then == HttpAnswer::Then::drip) drip(connection);
      if (answer.then == HttpAnswer::Then::reset) {
        const linger abruptly{.l_onoff = 1, .l_linger = 0};
        ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &abruptly, sizeof abruptly);
      }
      ::close(connection);
    }
  }

  static std::string head_of(int connection) {
    std::string head;
    char part[1024];
    while (!head.ends_with("\r\n\r\n")) {
      const ssize_t got = ::recv(connection, part, sizeof part, 0);
      if (got <= 0) return {};
      head.append(part, static_cast<size_t>(got));
    }
    return head;
  }

  static void send(int connection, const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t more = ::send(connection, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (more <= 0) return;
      sent += static_cast<size_t>(more);
    }
  }

  /// Sends a header byte every few milliseconds until the other side closes.
  static void drip(int connection) {
    constexpr int kPauseMilliseconds = 3;
    pollfd closed{.fd = connection, .events = POLLRDHUP, .revents = 0};
    while (::poll(&closed, 1, kPauseMilliseconds) == 0) send(connection, "x");
  }

  HttpAnswer answer_to(const std::string& request) {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    arrived_.notify_all();
    return proper_answer(request);
  }

  HttpAnswer proper_answer(const std::string& request) const {
    const auto asks = [&](const std::string& line) { return request.starts_with(line + " HTTP/1.1\r\n"); };
    const auto has = [&](const std::string& header) { return request.find("\r\n" + header + "\r\n") != request.npos; };
    const auto announced = [&] {
      if (trouble_) return *trouble_;
      return notice_ ? http(200, *notice_) : http(404, "<html>not found</html>");
    };
    const auto recognised = [&](const std::string& body, const std::string& header = {}) {
      return probe_trouble_ ? *probe_trouble_ : http(200, body, header);
    };
    if (cloud_ == "aws" || cloud_ == "alibaba") {
      const std::string name = cloud_ == "aws" ? "X-aws-ec2-metadata-token" : "X-aliyun-ecs-metadata-token";
      const std::string page = cloud_ == "aws" ? "spot/instance-action" : "instance/spot/termination-time";
      if (asks("PUT /latest/api/token")) {
        return has(name + "-ttl-seconds: 21600") ? recognised(token_) : http(400, "");
      }
      if (!has(name + ": " + token_)) return http(401, "");
      return asks("GET /latest/meta-data/" + page) ? announced() : http(404, "");
    }
    if (cloud_ == "google") {
      if (!has("Metadata-Flavor: Google")) return http(403, "");
      const std::string path = "GET /computeMetadata/v1/instance/";
      if (asks(path + "id")) return recognised("4520031799277582759", "Metadata-Flavor: Google");
      if (trouble_) return *trouble_;
      if (asks(path + "preempted")) return http(200, notice_.value_or("FALSE"), "Metadata-Flavor: Google");
      return asks(path + "maintenance-event") ? http(200, maintenance_, "Metadata-Flavor: Google") : http(404, "");
    }
    if (cloud_ == "azure") {
      if (!has("Metadata: true")) return http(400, "");
      if (asks("GET /metadata/instance/compute/name?api-version=2021-02-01&format=text")) {
        return recognised("trainer-7");
      }
      if (trouble_) return *trouble_;
      if (!asks("GET /metadata/scheduledevents?api-version=2020-07-01")) return http(404, "");
      return http(200, notice_.value_or(R"({"DocumentIncarnation": 1, "Events": []})"));
    }
    if (asks("GET /latest/meta-data/instance-id")) return recognised("ins-1a2b3c4d");
    return asks("GET /latest/meta-data/spot/termination-time") ? announced() : http(404, "");
  }

  const std::string cloud_;
  LoopbackSocket listening_;
  std::vector<int> hanging_;  // only the thread uses it, until it ends
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::string> requests_;
  std::optional<std::string> notice_;
  std::optional<HttpAnswer> trouble_, probe_trouble_;
  std::string token_ = "AQAEAHNlY3JldA==";
  std::string maintenance_ = "NONE";
  std::thread thread_;  // last member, because it uses all others
};

}  // namespace gputrain::testing
