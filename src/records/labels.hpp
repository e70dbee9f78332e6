// Labels in their column: classes by name, sets of classes, numbers, a tag for each word.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace gputrain::records {

/// Returns the value that a record has in this column. Throws Error(data) if it is null, or, with the existing columns
/// and this hint, if there is none.
const nlohmann::ordered_json& value_of_column(const nlohmann::ordered_json& record, const std::string& column,
                                              const std::string& hint);

/// Returns the class that a label names. Throws Error(data) if it names none.
std::string class_named_in(const nlohmann::ordered_json& label);

/// Reader of classes from the labels of a split. All of them together tell the spelling: the separator of the classes
/// of a set ("joy|surprise", "joy;surprise", "joy,surprise", a list), whether lists of 0 and 1 have a place for each
/// class, and whether 12.0 is the number 12, as programs write it whose columns have empty cells.
class LabelReader {
 public:
  /// Takes the classes of the training data as `known`; empty: these labels are the training data's.
  LabelReader(const std::vector<const nlohmann::ordered_json*>& labels, bool are_sets,
              const std::vector<std::string>& known);

  /// Returns one class, or those of a set. Throws Error(data) if the label names none.
  std::vector<std::string> classes_in(const nlohmann::ordered_json& label) const;
  /// Returns the classes of lists of 0 and 1: "0", "1" and so on; empty: labels name their classes.
  const std::vector<std::string>& places() const noexcept { return places_; }
  /// Warns where commas or semicolons were found to separate classes.
  void warn(const std::string& where) const;

 private:
  std::vector<std::string> names_in(const nlohmann::ordered_json& label) const;
  std::vector<std::string> names_in_text(const nlohmann::ordered_json& label) const;
  bool is_known(const std::string& name) const;
  std::string as_known(std::string name) const;
  void find_places(const std::vector<const nlohmann::ordered_json*>& labels, size_t known);

  bool are_sets_;
  std::vector<std::string> known_;  // sorted
  char separator_ = ',';
  std::string example_;  // label with this separator
  bool are_numbers_ = false;
  std::vector<std::string> places_;
};

/// Reader of the classes of a split's records: from the column that names them, or from several columns, one for each
/// class, with 1 or true in those of a record and 0 or false in the others.
class RecordClasses {
 public:
  /// Takes the records that could be read. `hint` is for records without such a column.
  RecordClasses(const std::vector<const nlohmann::ordered_json*>& records, std::vector<std::string> columns,
                bool are_sets, const std::vector<std::string>& known, std::string hint);

  /// Returns one class, or those of a set. Throws Error(data).
  std::vector<std::string> in(const nlohmann::ordered_json& record) const;
  /// Returns the classes that exist even if no record has them; empty: those that records name.
  std::vector<std::string> fixed() const;
  void warn(const std::string& where) const { reader_.warn(where); }

 private:
  std::vector<std::string> of_columns(const nlohmann::ordered_json& record) const;

  std::vector<std::string> columns_;
  bool are_sets_;
  std::string hint_;
  LabelReader reader_;
};

/// Returns true for 1, 1.0 or true, false for 0, 0.0 or false, in any case and with spaces around; else nothing.
std::optional<bool> flag_in(std::string_view name);

/// Warns of classes whose names differ only in case or spaces.
void warn_of_similar(const std::vector<std::string>& classes, const std::string& where);

/// Returns the number of a label, written as a number or as text. Throws Error(data), also if a float cannot hold it.
double number_in(const nlohmann::ordered_json& label);

/// Returns the texts, or whole numbers, of the list in this column of a record: words, or their tags. Throws
/// Error(data) if it is no list, or one of them is neither or not UTF-8.
std::vector<std::string> texts_of_list(const nlohmann::ordered_json& record, const std::string& column);

/// Classes with the numbers 0, 1, ... in order: whole numbers by size, other names by bytes.
class ClassNames {
 public:
  explicit ClassNames(std::vector<std::string> names);  // takes names in any order, also repeated

  const std::vector<std::string>& names() const noexcept { return names_; }
  /// Returns the number of a class. Throws Error(data), with the classes, if there is none of this name.
  int64_t number_of(const std::string& name) const;

 private:
  std::vector<std::string> names_;  // sorted as text in by_text_
  std::vector<std::pair<std::string, int64_t>> by_text_;
};

}  // namespace gputrain::records
