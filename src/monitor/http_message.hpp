// Requests and answers of HTTP/1.1 as text.
#pragma once

#include <string>

#include "gputrain/monitor/http_server.hpp"

namespace gputrain::monitor {

enum class Parsed { incomplete, whole, wrong };

/// Reads a request of at most 64 KiB.
Parsed parse(const std::string& text, HttpRequest& request);
/// Reads an answer; `is_ended`: the server has sent everything.
Parsed parse(const std::string& text, bool is_ended, HttpAnswer& answer);

/// The connection ends after the answer. To HEAD, it has no body.
std::string text_of(const HttpAnswer& answer, bool has_body);
std::string text_of(const HttpRequest& request, const std::string& host);

}  // namespace gputrain::monitor
