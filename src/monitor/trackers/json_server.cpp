#include "json_server.hpp"

#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/core/secrets.hpp"

namespace gputrain::monitor {
namespace {

using nlohmann::json;

/// Returns the server's complaint about a request.
std::string complaint_of(const net::Response& reply) {
  std::string text = "answers " + std::to_string(reply.status);
  const auto object = parse_json(reply.body);
  for (const char* place : {"/message", "/errors/0/message", "/error"}) {
    const auto said = text_if_at(object, place);
    if (!said) continue;
    text += ": " + said->substr(0, 300);
    break;
  }
  return without_url_secrets(printable(text));
}

}  // namespace

bool is_server_address(const std::string& uri) {
  return (uri.starts_with("http://") && uri.size() > 7) || (uri.starts_with("https://") && uri.size() > 8);
}

std::string percent_encoded(const std::string& text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF", kPlain = "-._~";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || kPlain.find(c) != std::string_view::npos)
      encoded += c;
    else
      encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return encoded;
}

std::string environment_or(const Lookup& lookup, const char* name, const std::string& otherwise) {
  const auto found = lookup(name);
  return found && !found->empty() ? *found : otherwise;
}

std::optional<std::string> text_if_at(const json& answer, const char* place) {
  const auto found = json::json_pointer(place);
  if (!answer.contains(found) || !answer[found].is_string()) return std::nullopt;
  return answer[found].get<std::string>();
}

void JsonServer::fail(const std::string& what) const {
  throw Error(ExitCode::environment, {.what = what, .where = without_url_secrets(address_)});
}

std::optional<json> JsonServer::send(const std::string& path, net::Request request) {
  constexpr std::chrono::seconds kConnecting{3};
  request.url = address_ + "/" + path;
  if (!authorization_.empty()) request.headers["Authorization"] = authorization_;
  request.limits = {.connect = std::min(kConnecting, most_), .silent = most_, .total = most_};
  const net::Response reply = client_.ask(request);
  if (reply.status == 404) return std::nullopt;
  json answer = reply.body.empty() ? json::object() : parse_json(reply.body);  // some say nothing about a file
  if (reply.status == 200 && answer.is_object()) return answer;
  fail(reply.status == 200 ? "does not answer as " + name_ : complaint_of(reply));
}

std::optional<json> JsonServer::post(const std::string& path, const json& content) {
  net::Request request{.method = "POST", .body = content.dump(-1, ' ', false, json::error_handler_t::replace)};
  request.headers["Content-Type"] = "application/json";
  return send(path, std::move(request));
}

}  // namespace gputrain::monitor
