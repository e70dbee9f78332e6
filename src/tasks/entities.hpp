// How well entities in tagged texts are found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/tasks/entities.hpp"
#include "scores.hpp"

namespace gputrain::tasks {

/// Columns of the rows of entity_hits(): code of the predicted tag, code of the true one, place in its text.
inline constexpr int64_t kTagColumns = 3;

/// int64 [classes]: 3 kind + part of each tag, where a kind is the text after "B-" or "I-", and the part is 0 outside,
/// 1 for B, 2 for I. A tag without such a begin is an entity of one word, but "O" is none.
at::Tensor tag_codes(const std::vector<std::string>& tags, int64_t classes);

/// Of double [words, kTagColumns], texts one after the other, each from its begin; words with code -1 do not count. An
/// entity is right if its kind, its first and its last word are. As the package seqeval counts, and conlleval.
Hits entity_hits(const at::Tensor& rows);

}  // namespace gputrain::tasks
