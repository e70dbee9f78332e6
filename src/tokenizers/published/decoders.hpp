// Decoders: they turn the texts of tokens into text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "json_part.hpp"

namespace gputrain::tokenizers {

/// Changes the texts of tokens; at last they are joined. Thread-safe.
using Decoder = std::function<void(std::vector<std::string>& texts)>;

/// "decoder" of a tokenizer.json.
Decoder read_decoder(const JsonPart& part);

Decoder byte_level_decoder();
/// "##" and the like joins a token to the one before.
Decoder word_piece_decoder(std::string inner_prefix, bool cleans_up);
/// "▁" becomes a space; with `drops_first`, not at the begin.
Decoder metaspace_decoder(std::string mark, bool drops_first);
/// "<0x41>" becomes "A".
Decoder byte_fallback_decoder();

/// The text with U+FFFD in place of what is not UTF-8, one for each longest begin of a character.
std::string repaired(std::string_view text);

}  // namespace gputrain::tokenizers
