// Makes untrusted text safe for a terminal or a page.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gputrain {

/// Returns the number of bytes of the UTF-8 character at `at`; 0 if it is invalid.
size_t character_length(std::string_view text, size_t at);

/// Replaces invalid UTF-8 and control characters with '?', except the control characters in `kept`.
std::string printable(std::string_view text, std::string_view kept = {});

/// Does the same for text in HTML and SVG, attributes in double quotes included.
std::string html_text(std::string_view text);

}  // namespace gputrain
