// Search of a file of records for what a model can learn of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gputrain::records {

/// What records of texts are, by their columns and what stands in them.
struct FoundRecords {
  enum class Kind {
    conversations,
    completions,   // prompts, each with a text that follows
    preferences,   // two answers, one of which is better
    ratings,       // answers that are good or bad
    classes,       // texts, each with a class
    class_sets,    // ... with a set of classes
    numbers,       // ... with a number
    tags,          // words, each with a tag
    pairs,         // texts that are alike
    scored_pairs,  // ... as much as a number says
    texts,
  };

  Kind kind = Kind::texts;
  std::string format;           // "jsonl"
  std::string columns = {};     // keys of data.text.columns, without braces; empty: the usual ones
  bool is_chat = false;         // true: messages, which a chat template makes into text
  std::string question = {};    // what the first user says first, or the first word of texts; empty if it is long
  bool has_no_names = false;    // true: a table whose first row does not name the columns, which have numbers then
  double max_bad_fraction = 0;  // of records that cannot be used; 0: none was seen
};

/// Reads the file, if its name or its form says that it has records, and looks at the first of them. `for_encoder`:
/// questions with answers are pairs. Empty: it has none, or they have none of these forms. Throws Error(data).
std::optional<FoundRecords> found_records(const std::string& path, bool for_encoder = false);

/// Returns the names of a file's columns, "a, b", as its first record has them; empty: it has no records.
std::string column_names_of(const std::string& path);

/// Describes the kind: "conversations", "pairs of a better and a worse answer".
std::string in_words(FoundRecords::Kind kind);

}  // namespace gputrain::records
