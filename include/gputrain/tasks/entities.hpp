// Entities in tagged texts: runs of words with tags B-X, I-X of one kind (Ramshaw and Marcus, cmp-lg/9505040).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gputrain::tasks {

struct Entity {
  std::string kind;            // the X of its tags
  int64_t begin = 0, end = 0;  // its words: from the first up to the one behind the last
};

/// The entities of one text by the tags of its words, as the metric entity_f1 finds them. A tag without B- or I- is an
/// entity of one word, but O is none.
std::vector<Entity> entities_in(const std::vector<std::string>& tags);

}  // namespace gputrain::tasks
