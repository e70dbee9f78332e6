// The special tokens around a text, or around two.
#pragma once

#include "files/json_part.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::tokenizers {

struct Frames {
  Frame one;
  Frame two{.second_type = 1};
};

/// Reads "post_processor" of a tokenizer.json.
Frames read_post_processor(const JsonPart& part);

}  // namespace gputrain::tokenizers
