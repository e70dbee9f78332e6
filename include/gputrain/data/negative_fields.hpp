// Fields of a sample's texts that are not like its first.
#pragma once

#include <cstdint>
#include <string>

#include "gputrain/data/batch.hpp"

namespace gputrain::data {

/// Returns the field of such a text, numbered from 0: "negative_tokens", "negative_tokens_2".
inline std::string negative_tokens(int64_t number) {
  return kNegativeTokens + (number == 0 ? std::string() : "_" + std::to_string(number + 1));
}

}  // namespace gputrain::data
