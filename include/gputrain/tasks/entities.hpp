// Entities in tagged texts: runs of words with tags B-X, I-X of one kind (Ramshaw and Marcus, cmp-lg/9505040), where
// E-X or L-X may be the last word and S-X or U-X the only one (BIOES and BILOU).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gputrain::tasks {

struct Entity {
  std::string kind;            // X of its tags
  int64_t begin = 0, end = 0;  // range of its words, [begin, end)
};

/// Returns the entities of one text by the tags of its words, as the metric entity_f1 finds them. A tag without such a
/// prefix is an entity of one word, but O is none.
std::vector<Entity> entities_in(const std::vector<std::string>& tags);

/// Returns whether some of these tags, like B-X, are parts of entities.
bool mark_entities(const std::vector<std::string>& tags);

/// Returns whether all tags are numbers, as in the Hub's data sets: they do not tell which words are an entity.
bool are_numbers(const std::vector<std::string>& tags);

}  // namespace gputrain::tasks
