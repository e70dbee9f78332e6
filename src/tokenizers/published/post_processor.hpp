// What goes around a text when special tokens are asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "json_part.hpp"

namespace gputrain::tokenizers {

struct Frame {
  std::vector<int64_t> before, behind;
};

/// "post_processor" of a tokenizer.json, for a single text.
Frame read_post_processor(const JsonPart& part);

}  // namespace gputrain::tokenizers
