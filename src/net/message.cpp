#include "gputrain/net/message.hpp"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

namespace gputrain::net {
namespace {

constexpr size_t kMostBytes = 64 << 10;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

/// The value of Content-Length; 0 if there is none; none if it is no number.
std::optional<size_t> length_in(const Headers& headers) {
  const auto found = headers.find("Content-Length");
  if (found == headers.end()) return 0;
  const std::string& value = found->second;
  size_t length = 0;
  const char* const last = value.data() + value.size();
  const auto [end, error] = std::from_chars(value.data(), last, length);
  return error == std::errc() && end == last ? std::optional(length) : std::nullopt;
}

const char* phrase_of(int status) {
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

bool LessWithoutCase::operator()(const std::string& one, const std::string& other) const noexcept {
  return ::strcasecmp(one.c_str(), other.c_str()) < 0;
}

std::string Headers::get(const std::string& name) const {
  const auto found = find(name);
  return found == end() ? "" : found->second;
}

void Headers::read(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon != line.npos) (*this)[std::string(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
}

std::string Request::query() const {
  const size_t question = url.find('?');
  return question == url.npos ? "" : url.substr(question + 1);
}

Parsed parse(const std::string& text, Request& request) {
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return text.size() > kMostBytes ? Parsed::wrong : Parsed::incomplete;
  std::istringstream lines(text.substr(0, end));
  std::string line, version;
  std::getline(lines, line);
  std::istringstream(line) >> request.method >> request.url >> version;
  if (!version.starts_with("HTTP/1.") || !request.url.starts_with('/')) return Parsed::wrong;
  while (std::getline(lines, line)) request.headers.read(line);
  const auto length = length_in(request.headers);
  if (!length || *length > kMostBytes) return Parsed::wrong;
  if (text.size() < end + 4 + *length) return Parsed::incomplete;
  request.body = text.substr(end + 4, *length);
  return Parsed::whole;
}

std::string text_of(const Response& response, bool has_body) {
  Headers headers = response.headers;
  headers.insert({{"Content-Type", "text/plain; charset=utf-8"},
                  {"Content-Length", std::to_string(response.body.size())},
                  {"Cache-Control", "no-store"},
                  {"X-Content-Type-Options", "nosniff"},
                  {"Connection", "close"}});
  std::string text = "HTTP/1.1 " + std::to_string(response.status) + " " + phrase_of(response.status) + "\r\n";
  for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
  return text + "\r\n" + (has_body ? response.body : "");
}

}  // namespace gputrain::net
