#include "http_message.hpp"

#include <charconv>
#include <optional>
#include <sstream>

#include <arpa/inet.h>

#include "gputrain/core/lower_case.hpp"

namespace gputrain::monitor {
namespace {

constexpr size_t kMostBytes = 64 << 10;

/// The value of a header in lower case, without spaces around it; none if there is no such header. `name`: in lower
/// case.
std::optional<std::string> header_in(const std::string& head, const std::string& name) {
  const std::string lower = lower_case(head) + "\r\n", begin = "\r\n" + name + ":";
  const size_t at = lower.find(begin);
  if (at == std::string::npos) return std::nullopt;
  std::string value = lower.substr(at + begin.size(), lower.find("\r\n", at + begin.size()) - at - begin.size());
  value.erase(0, std::min(value.find_first_not_of(" \t"), value.size()));
  value.resize(value.find_last_not_of(" \t") + 1);
  return value;
}

/// The value of Content-Length; 0 if there is none; none if it is no number.
std::optional<size_t> length_in(const std::string& head) {
  const auto value = header_in(head, "content-length");
  if (!value) return 0;
  size_t length = 0;
  const char* const last = value->data() + value->size();
  const auto [end, error] = std::from_chars(value->data(), last, length);
  return error == std::errc() && end == last ? std::optional(length) : std::nullopt;
}

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
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
  request.host = header_in(text.substr(0, end), "host").value_or("");
  return Parsed::whole;
}

bool is_local_host(const std::string& host) {
  std::string name = host.ends_with(']') ? host : host.substr(0, host.rfind(':'));  // without the port
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  in6_addr address{};
  return name == "localhost" || name.ends_with(".localhost") || ::inet_pton(AF_INET, name.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
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

std::string text_of(const HttpAnswer& answer, bool has_body) {
  return "HTTP/1.1 " + std::to_string(answer.status) + " " + reason_of(answer.status) +
         "\r\nContent-Type: " + answer.type + "\r\nContent-Length: " + std::to_string(answer.body.size()) +
         "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n" +
         (has_body ? answer.body : "");
}

std::string text_of(const HttpRequest& request, const std::string& host) {
  return request.method + " " + request.path + (request.query.empty() ? "" : "?" + request.query) +
         " HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: " + std::to_string(request.body.size()) +
         "\r\nConnection: close\r\n\r\n" + request.body;
}

}  // namespace gputrain::monitor
