// Reads tokenizer.json, the format of Hugging Face's tokenizers package.
#pragma once

#include "../parts.hpp"

namespace gputrain::tokenizers {

/// `root`: the whole file.
PublishedTokenizer::Parts read_tokenizer_json(const JsonPart& root);

}  // namespace gputrain::tokenizers
