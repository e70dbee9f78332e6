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

/// What a job picks from a catalog whose options belong into the group at hand.
struct Picked {
  const AnyCatalog* catalog;
  const CatalogEntry* entry;
};

class UnknownKeys {
 public:
  explicit UnknownKeys(const Schema& root) : root_(root) {}

  /// Notes that `part` is not known in the group `group`, which knows the names `siblings`.
  void note(const Node& part, const std::string& group, const std::vector<std::string>& siblings,
            const std::vector<Picked>& picked, Problems& problems);

  /// Whether other tools call a key of the group `group` as `part` is called, whatever is picked there.
  bool is_renamed(const Node& part, const std::string& group);

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
  std::string near_elsewhere(const std::string& name);
  std::string advice_inside(const Node& map, const std::string& group);
  const KeyIndex& index();

  const Schema& root_;
  std::optional<KeyIndex> index_;  // built for the first unknown key
};

}  // namespace gputrain::config
