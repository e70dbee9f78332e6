// Breaks text into lines for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gputrain {

/// Breaks `text` at spaces into lines of at most `room` characters (longer only for a long word). Each line but the
/// first starts with `indent` spaces.
std::string wrapped(std::string_view text, size_t room, size_t indent);

/// Breaks each line of `text` for the terminal that stderr is; returns it as it is where stderr is none.
std::string wrapped_for_stderr(std::string_view text);

/// Returns the text with a sign for each line end and tab: "↵" and "⇥", or the two characters \n and \t.
std::string in_one_line(std::string_view text, bool unicode);

/// Returns at most `most` characters of the text, of which there are three at least; "..." stands for the rest.
std::string cut_to(std::string_view text, size_t most);

}  // namespace gputrain
