// The text of a job, section by section.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gputrain::app {

class JobText {
 public:
  /// Begins with the sections that every job has.
  JobText() : JobText("schema: 1\nname: job\n") {}
  /// Takes a job's sections, without the comments before them.
  explicit JobText(std::string_view yaml);

  /// Sets a section: what follows its key, on the same line or in lines of their own. A new one comes last.
  JobText& set(const std::string& key, const std::string& value);
  JobText& remove(const std::string& key);
  /// Replaces a part of a section, which must have it.
  JobText& replace(const std::string& key, std::string_view part, const std::string& by);
  /// Returns the value of a line of a section: "{tokenizer: words}" of "text" in "data"; empty: there is none.
  std::string line_of(const std::string& key, std::string_view name) const;

  /// Returns a number within a section: 16 of "global_batch_size: 16" in "train"; 0: there is none.
  int64_t number_of(const std::string& key, const std::string& name) const;

  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> sections_;  // key, and value with its line ends
};

/// Returns a text as YAML takes it.
std::string in_quotes(const std::string& text);

/// Returns a map in braces with one more key, `more` as "key: value"; empty: the map itself.
std::string with_key(const std::string& map, const std::string& more);

}  // namespace gputrain::app
