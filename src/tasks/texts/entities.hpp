// Scores of entities that are found in tagged texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "../scores.hpp"
#include "gputrain/tasks/entities.hpp"

namespace gputrain::tasks {

/// Columns of the rows of entity_hits(): code of the predicted tag, code of the true one, place in its text.
inline constexpr int64_t kTagColumns = 3;

/// Returns int64 [classes]: a number for each tag's kind, as in entities_in(), and its part: outside, B, I, E or S.
at::Tensor tag_codes(const std::vector<std::string>& tags, int64_t classes);

/// Counts hits in double [words, kTagColumns], texts one after the other, each from its begin; words with code -1 do
/// not count. An entity is right if its kind, its first and its last word are, as in seqeval and conlleval.
Hits entity_hits(const at::Tensor& rows);

}  // namespace gputrain::tasks
