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
  std::string format;         // "jsonl"
  std::string columns = {};   // keys of data.text.columns, without braces; empty: the usual ones
  std::string question = {};  // what the user of the first conversation says first, if that is short
};

/// Reads the file, if its name says that it has records, and looks at the first of them. Empty: it has none, or they
/// have none of these forms. Throws Error(data).
std::optional<FoundRecords> found_records(const std::string& path);

/// Describes the kind: "conversations", "pairs of a better and a worse answer".
std::string in_words(FoundRecords::Kind kind);

}  // namespace gputrain::records
