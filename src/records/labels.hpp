// What a label column says: classes by name, sets of classes, numbers, a tag for each word.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace gputrain::records {

/// What a record has in this column. Throws Error(data) with the columns that there are, and this hint.
const nlohmann::ordered_json& value_of_column(const nlohmann::ordered_json& record, const std::string& column,
                                              const std::string& hint);

/// The names in a label: one for a class; for a set, those of a list, or of a text between bars: "joy|surprise". Throws
/// Error(data) if it names none.
std::string class_named_in(const nlohmann::ordered_json& label);
std::vector<std::string> classes_named_in(const nlohmann::ordered_json& label);

/// The number of a label, written as a number or as text. Throws Error(data), also if a float cannot hold it.
double number_in(const nlohmann::ordered_json& label);

/// The texts, or whole numbers, of the list in this column of a record: words, or their tags. Throws Error(data) if it
/// is no list, or one of them is neither or not UTF-8.
std::vector<std::string> texts_of_list(const nlohmann::ordered_json& record, const std::string& column);

/// Classes with the numbers 0, 1, ... in order: whole numbers by size, other names by bytes.
class ClassNames {
 public:
  explicit ClassNames(std::vector<std::string> names);  // in any order, also several times

  const std::vector<std::string>& names() const noexcept { return names_; }
  /// Throws Error(data), with the classes, if there is none of this name.
  int64_t number_of(const std::string& name) const;

 private:
  std::vector<std::string> names_;  // sorted as text in by_text_
  std::vector<std::pair<std::string, int64_t>> by_text_;
};

}  // namespace gputrain::records
