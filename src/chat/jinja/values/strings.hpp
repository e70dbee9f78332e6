// Operations on strings that Python's methods and Jinja's filters share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "value.hpp"

namespace gputrain::chat {

/// Replaces at most `count` times, if that is not negative. An empty `old` stands before each character and at the end.
std::string replaced(std::string_view text, std::string_view old, std::string_view by, int64_t count, Budget& budget);

/// Split as str.split() and str.rsplit(): at `separator`, or at white space; at most `most` times, if not negative.
Values split(std::string_view text, std::optional<std::string_view> separator, int64_t most, Budget& budget);
Values split_from_end(std::string_view text, std::optional<std::string_view> separator, int64_t most, Budget& budget);

/// Splits as str.splitlines().
std::vector<std::string_view> lines_of(std::string_view text, bool keeps_ends);

}  // namespace gputrain::chat
