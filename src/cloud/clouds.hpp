// Clouds whose metadata service announces that a machine is taken away: address, requests, and readers of the answers.
#pragma once

#include <chrono>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gputrain/net/message.hpp"

namespace gputrain::cloud {

using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;

/// Meaning of an answer to a poll.
struct Reading {
  enum class Kind {
    clear,   // nothing is announced
    notice,  // `event` is announced
    junk,    // not what the cloud's documentation describes
  };
  Kind kind = Kind::clear;
  std::string event;           // word of the cloud: "terminate", "preempt", ...
  std::optional<WallTime> at;  // time of the event; empty: counted from when the notice appeared
  double promised_seconds = std::numeric_limits<double>::infinity();  // longest notice of this cloud
};

/// Input of a reader besides the answer.
struct PollContext {
  std::string identity;  // result of identify()
  bool has_gpu = false;
};

struct CloudPoll {
  std::string_view path;
  bool none_is_404 = false;  // status 404: nothing is announced
  Reading (*read)(std::string_view body, const PollContext& context);
};

/// Cloud, recognised by its answer to `probe`. The identity there is a token for requests, the machine's name, or its
/// id.
struct Cloud {
  std::string_view key;   // name in configuration: "aws"
  std::string_view name;  // name for people: "AWS"
  std::string_view address;
  net::Request probe;  // its `url` is a path
  std::optional<std::string> (*identify)(const net::Response& reply);
  std::string_view header;  // header of every poll: "Metadata: true"; after a final ": " goes the identity
  std::span<const CloudPoll> polls;

  bool uses_token() const noexcept { return header.ends_with(": "); }
  net::Headers headers_with(const std::string& identity) const;
};

std::span<const Cloud> clouds();

/// Reads "2026-01-31T17:02:07Z", fractions of a second allowed.
std::optional<WallTime> read_utc_time(std::string_view text);
/// Reads "Sat, 31 Jan 2026 17:02:07 GMT".
std::optional<WallTime> read_http_date(std::string_view text);
/// Reads "2026-02-01 01:02:07", in China's time (UTC+8).
std::optional<WallTime> read_china_time(std::string_view text);

}  // namespace gputrain::cloud
