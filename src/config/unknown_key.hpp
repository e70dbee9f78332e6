// Advice for an unknown key.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gputrain/config/node.hpp"
#include "gputrain/config/schema.hpp"
#include "key_index.hpp"
#include "problems.hpp"

namespace gputrain::config {

/// A picked catalog entry whose options are keys of the current group.
struct Picked {
  const AnyCatalog* catalog;
  const CatalogEntry* entry;
};

class UnknownKeys {
 public:
  /// Keeps both.
  UnknownKeys(const Schema& root, const Node& job) : root_(root), job_(job) {}

  /// Reports that `part` is unknown in `group`, whose known keys are `siblings`.
  void note(const Node& part, const std::string& group, const std::vector<std::string>& siblings,
            const std::vector<Picked>& picked, Problems& problems);

  /// Returns the value of a key of ours for another tool's word, by what the root says of other tools: "adamw" for
  /// `optimizer.type: adamw_torch`. Empty: there is none.
  std::string our_word(const std::string& dotted, const Node& theirs) const;

  /// Returns whether `part` is another tool's name for a key of `group` itself, not for an option of an entry.
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

  /// A value for one of our keys, in the place of what the job has.
  struct Proposal {
    const KnownKey* known;
    Node value;
  };

  std::optional<KeyIndex::Renamed> known_by_other_name(const Question& question);
  std::optional<Advice> renamed(const Question& question);
  std::optional<Proposal> proposed(const Question& question);
  void mind_value(const Question& question, Advice& advice);
  static Advice other_values(const Question& question, const KnownKey& known, const Problem& mistake);
  Advice from_other_tool(const Question& question, const Schema::Instead& instead);
  std::vector<Problem> mistakes_in(const Proposal& proposal);
  bool is_picked(const KnownKey& option) const;
  std::string without_option(const Question& question, const KnownKey& option);
  std::optional<Advice> other_entry(const Question& question);
  std::optional<Advice> misplaced(const Question& question);
  std::optional<Advice> dotted(const Question& question);
  Advice misspelt(const Question& question);
  std::string near_elsewhere(const std::string& name, const std::string& group);
  std::string advice_inside(const Node& map, const std::string& group);
  const KeyIndex& index();

  const Schema& root_;
  const Node& job_;
  std::set<std::vector<std::string>> listed_;  // keys of groups, each told once
  std::set<std::string> told_replaceable_;     // groups
  std::optional<KeyIndex> index_;              // built at the first unknown key
};

}  // namespace gputrain::config
