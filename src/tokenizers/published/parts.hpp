// The parts of a published tokenizer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "added_tokens.hpp"
#include "decoders.hpp"
#include "gputrain/tokenizers/published.hpp"
#include "post_processor.hpp"
#include "subwords/model.hpp"
#include "text/normalizers.hpp"
#include "text/pre_tokenizers.hpp"

namespace gputrain::tokenizers {

struct PublishedTokenizer::Parts {
  std::unique_ptr<const Model> model;
  std::vector<AddedToken> added = {};
  Normalizer normalizer = nullptr;
  PreTokenizers pre_tokenizers = {};
  Decoder decoder = nullptr;  // null: texts are joined by spaces
  Frames frames = {};
  std::string end_token = {};  // its spelling; empty: the files do not say
};

}  // namespace gputrain::tokenizers
