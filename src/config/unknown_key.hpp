// What to say about a key that is not known where it stands.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/node.hpp"
#include "gputrain/config/schema.hpp"
#include "key_index.hpp"
#include "problems.hpp"

namespace gputrain::config {

/// A choice of the group at hand and the entry that the job picks.
struct Picked {
  const AnyCatalog* catalog;
  const CatalogEntry* entry;
  bool options_beside;  // else they are under a key of their own
};

class UnknownKeys {
 public:
  explicit UnknownKeys(const Schema& root) : root_(root) {}

  /// Notes that `part` is not known in the group `group`, which knows the names `siblings`.
  void note(const Node& part, const std::string& group, const std::vector<std::string>& siblings,
            const std::vector<Picked>& picked, Problems& problems);

 private:
  struct Advice {
    std::string what, hint;
  };
  struct Question {
    const Node& part;
    const std::string& group;
    const std::vector<std::string>& siblings;
    const std::vector<Picked>& picked;
  };

  std::optional<Advice> renamed(const Question& question);
  std::optional<Advice> other_entry(const Question& question);
  std::optional<Advice> misplaced(const Question& question);
  std::optional<Advice> dotted(const Question& question);
  Advice misspelt(const Question& question);
  std::string advice_inside(const Node& map, const std::string& group);
  const KeyIndex& index();

  const Schema& root_;
  std::optional<KeyIndex> index_;  // built for the first unknown key
};

}  // namespace gputrain::config
