// How well entities in tagged texts are found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/tasks/entities.hpp"
#include "../scores.hpp"

namespace gputrain::tasks {

/// Columns of the rows of entity_hits(): code of the predicted tag, code of the true one, place in its text.
inline constexpr int64_t kTagColumns = 3;

/// int64 [classes]: a number for each tag's kind, as in entities_in(), and its part: outside, B, I, E or S.
at::Tensor tag_codes(const std::vector<std::string>& tags, int64_t classes);

/// Of double [words, kTagColumns], texts one after the other, each from its begin; words with code -1 do not count. An
/// entity is right if its kind, its first and its last word are. As the package seqeval counts, and conlleval.
Hits entity_hits(const at::Tensor& rows);

}  // namespace gputrain::tasks
