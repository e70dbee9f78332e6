// Marks in rendered conversations, such as <|end|> or [INST], and the parts between them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gputrain/chat/template.hpp"

namespace gputrain::chat {

bool is_blank(std::string_view text);
std::string_view part(const std::string& text, const Range& range);

/// Returns the size of the mark at the begin of a text: <...> without white space, or [...] in capitals; or 0.
size_t mark_at(std::string_view text);

/// Returns the size of the begin that both share. It ends between words, and not within a mark such as <|end|> or
/// [INST].
size_t shared_beginning(std::string_view text, std::string_view other);

/// Returns the begin of the mark at the end of a text, such as <|end|> or </s>, or of several of them in a row, with
/// white space behind. The size of the text if it ends with none.
size_t ending_mark(std::string_view text);

/// Returns the size of the mark <|...|> at the begin of a text, after white space; 0 if there is none.
size_t beginning_mark(std::string_view text);

}  // namespace gputrain::chat
