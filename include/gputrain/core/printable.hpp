// Text of others, fit for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gputrain {

/// The number of bytes of the UTF-8 character at `at`; 0 when there is none.
size_t character_length(std::string_view text, size_t at);

/// Replaces what is no UTF-8 or what a terminal could take for a command by '?'; keeps letters, and of the control
/// characters `kept`.
std::string printable(std::string_view text, std::string_view kept = {});

}  // namespace gputrain
