// Cuts a text at delimiters, and says what becomes of these.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "pre_tokenizers.hpp"
#include "regex.hpp"

namespace gputrain::tokenizers {

enum class DelimiterBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

/// Returns nothing if there is no behavior of this name.
std::optional<DelimiterBehavior> delimiter_behavior(std::string_view name);

using TakeDelimiter = FunctionRef<void(size_t begin, size_t end)>;
/// Finds all delimiters of a text, in order.
using FindDelimiters = std::function<void(std::string_view text, Workspace&, TakeDelimiter)>;

/// Makes a splitter. `is_inverted`: what lies between matches is the delimiter.
PreTokenizer split(FindDelimiters find, DelimiterBehavior behavior, bool is_inverted = false);

FindDelimiters matches_of(std::shared_ptr<const Regex> regex);
/// Finds each character of this kind by itself.
FindDelimiters characters_that(bool (*is_kind)(int64_t point) noexcept);

}  // namespace gputrain::tokenizers
