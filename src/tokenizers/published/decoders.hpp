// Decoders: they turn the texts of tokens into text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "files/json_part.hpp"

namespace gputrain::tokenizers {

/// Changes the texts of tokens; at last they are joined. Thread-safe.
using Decoder = std::function<void(std::vector<std::string>& texts)>;

/// Reads "decoder" of a tokenizer.json.
Decoder read_decoder(const JsonPart& part);

Decoder byte_level_decoder();
/// Makes the decoder that joins a token with "##" or the like to the one before.
Decoder word_piece_decoder(std::string inner_prefix, bool cleans_up);
/// Makes the decoder that turns "▁" into a space; with `drops_first`, not at the begin.
Decoder metaspace_decoder(std::string mark, bool drops_first);
/// Makes the decoder that turns "<0x41>" into "A".
Decoder byte_fallback_decoder();

/// Returns the text with U+FFFD in place of what is not UTF-8, one for each longest begin of a character.
std::string repaired(std::string_view text);

}  // namespace gputrain::tokenizers
