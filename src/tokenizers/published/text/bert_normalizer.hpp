// BERT's normalisation of a text: cleans it, sets CJK characters apart, strips accents, makes lower case.
#pragma once

#include "normalizers.hpp"

namespace gputrain::tokenizers {

struct BertNormalizerOptions {
  bool cleans = true;
  bool splits_chinese = true;
  bool strips_accents = true;
  bool lowers_case = true;
};

Normalizer bert_normalizer(BertNormalizerOptions options);

}  // namespace gputrain::tokenizers
