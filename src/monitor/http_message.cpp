#include "http_message.hpp"

#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>

#include "gputrain/core/lower_case.hpp"

namespace gputrain::monitor {
namespace {

constexpr size_t kMostBytes = 64 << 10;

/// The value of Content-Length; 0 if there is none; none if it is no number.
std::optional<size_t> length_in(const std::string& head) {
  constexpr std::string_view kName = "\r\ncontent-length:";
  const std::string lower = lower_case(head);
  const size_t at = lower.find(kName);
  if (at == std::string::npos) return 0;
  const size_t begin = lower.find_first_not_of(' ', at + kName.size());
  size_t length = 0;
  const char* first = lower.data() + std::min(begin, lower.size());
  const auto [end, error] = std::from_chars(first, lower.data() + lower.size(), length);
  return error == std::errc() && end > first ? std::optional(length) : std::nullopt;
}

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Error";
  }
}

}  // namespace

Parsed parse(const std::string& text, HttpRequest& request) {
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return text.size() > kMostBytes ? Parsed::wrong : Parsed::incomplete;
  const auto length = length_in(text.substr(0, end));
  if (!length || *length > kMostBytes) return Parsed::wrong;
  if (text.size() < end + 4 + *length) return Parsed::incomplete;
  std::istringstream first(text.substr(0, text.find("\r\n")));
  std::string target, version;
  first >> request.method >> target >> version;
  if (!version.starts_with("HTTP/1.") || !target.starts_with('/')) return Parsed::wrong;
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  request.query = question == std::string::npos ? "" : target.substr(question + 1);
  request.body = text.substr(end + 4, *length);
  return Parsed::whole;
}

Parsed parse(const std::string& text, bool is_ended, HttpAnswer& answer) {
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return is_ended ? Parsed::wrong : Parsed::incomplete;
  const auto length = length_in(text.substr(0, end));
  if (!length) return Parsed::wrong;
  if (text.size() < end + 4 + *length) return is_ended ? Parsed::wrong : Parsed::incomplete;
  std::istringstream first(text.substr(0, text.find("\r\n")));
  std::string version;
  if (!(first >> version >> answer.status) || !version.starts_with("HTTP/1.")) return Parsed::wrong;
  answer.body = text.substr(end + 4, *length);
  return Parsed::whole;
}

std::string text_of(const HttpAnswer& answer) {
  return "HTTP/1.1 " + std::to_string(answer.status) + " " + reason_of(answer.status) +
         "\r\nContent-Type: " + answer.type + "\r\nContent-Length: " + std::to_string(answer.body.size()) +
         "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n" + answer.body;
}

std::string text_of(const HttpRequest& request, const std::string& host) {
  return request.method + " " + request.path + (request.query.empty() ? "" : "?" + request.query) +
         " HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: " + std::to_string(request.body.size()) +
         "\r\nConnection: close\r\n\r\n" + request.body;
}

}  // namespace gputrain::monitor
