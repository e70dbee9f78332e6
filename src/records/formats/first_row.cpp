#include "first_row.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "../labels.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/printable.hpp"

namespace gputrain::records {
namespace {

constexpr std::array<std::string_view, 30> kUsualNames{
    "text",     "sentence", "sentence1", "sentence2", "review", "content", "comment",   "message",   "title",  "body",
    "question", "answer",   "query",     "document",  "tweet",  "premise", "utterance", "words",     "tokens", "label",
    "labels",   "class",    "category",  "target",    "score",  "rating",  "stars",     "sentiment", "intent", "id"};

bool is_number(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

/// Returns the text of a cell; null: there is none.
const std::string* cell_of(const Record& record, const std::string& column) {
  if (!record.problem.empty() || !record.value.is_object()) return nullptr;
  const auto found = record.value.find(column);
  return found != record.value.end() && found->is_string() ? &found->get_ref<const std::string&>() : nullptr;
}

int64_t words_of(std::string_view text) {
  int64_t words = 0;
  for (size_t at = 0; (at = text.find_first_not_of(' ', at)) != text.npos;
       at = std::min(text.find(' ', at), text.size()))
    ++words;
  return words;
}

bool is_label_of_number(const std::string& label) {
  try {
    number_in(label);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Returns whether all cells look like names of columns.
bool are_names(const Record& row, double usual_words, const NumberedColumns& columns) {
  bool is_usual = false;
  size_t number = 0;
  for (const auto& [name, cell] : row.value.items()) {
    if (name != std::to_string(number++) || !cell.is_string()) return false;
    const auto& text = cell.get_ref<const std::string&>();
    if (text.empty() || words_of(text) > 3 || text.find_first_of(".,;!?") != text.npos) return false;
    is_usual = is_usual || std::ranges::find(kUsualNames, lower_case(text)) != kUsualNames.end();
  }
  const std::string* text = cell_of(row, columns.text);
  return is_usual || (text != nullptr && 2 * static_cast<double>(words_of(*text)) <= usual_words);
}

/// Labels and lengths of the rows that are no first ones.
struct Others {
  std::set<std::string> labels;
  double words = 0;  // mean number of words in a text

  Others(const AllRecords& all, const NumberedColumns& columns)
      : labels(columns.known_classes.begin(), columns.known_classes.end()) {
    int64_t texts = 0;
    for (size_t i = 0; i < all.records.size(); ++i) {
      if (std::ranges::binary_search(all.begins, i)) continue;
      if (columns.label)
        if (const std::string* label = cell_of(all.records[i], *columns.label)) labels.insert(*label);
      if (const std::string* text = cell_of(all.records[i], columns.text)) {
        words += static_cast<double>(words_of(*text));
        ++texts;
      }
    }
    if (texts > 0) words /= static_cast<double>(texts);
  }
};

enum class FirstRow { record, names, doubtful };

FirstRow kind_of(const Record& row, const Others& others, const NumberedColumns& columns) {
  const std::string* label = columns.label ? cell_of(row, *columns.label) : nullptr;
  if (columns.label && label != nullptr) {
    const bool has_classes = columns.target == Target::label || columns.target == Target::labels;
    if (!has_classes && is_label_of_number(*label)) return FirstRow::record;
    if (columns.target == Target::number || columns.target == Target::pairs) return FirstRow::names;
    if (others.labels.contains(*label)) return FirstRow::record;
  }
  if (!row.problem.empty() || !row.value.is_object()) return FirstRow::record;
  if (are_names(row, others.words, columns)) return FirstRow::names;
  return label != nullptr ? FirstRow::doubtful : FirstRow::record;
}

}  // namespace

std::optional<NumberedColumns> numbered_columns(const data::ColumnNames& names, Target target) {
  NumberedColumns columns{.text = names.text.value_or(""), .target = target};
  const std::vector<std::string> labels = names.label ? names.label->values : std::vector<std::string>();
  if (labels.size() == 1) columns.label = labels[0];
  if (!std::ranges::all_of(labels, is_number)) return std::nullopt;
  bool is_any = false;
  for (const auto& name : {names.text, names.text_pair, names.negative, columns.label, names.prompt, names.completion,
                           names.chosen, names.rejected}) {
    if (name && !is_number(*name)) return std::nullopt;
    is_any = is_any || name.has_value();
  }
  if (labels.size() > 1) {  // each has 0 or 1
    columns.label = labels[0];
    columns.known_classes = {"0", "1"};
  }
  return is_any ? std::optional(std::move(columns)) : std::nullopt;
}

void leave_out_names(AllRecords& all, const NumberedColumns& columns) {
  if (all.records.size() < 2) return;
  const Others others(all, columns);
  std::vector<size_t> names;
  for (const size_t begin : all.begins) {
    const Record& row = all.records[begin];
    const FirstRow kind = kind_of(row, others, columns);
    std::string cells;
    for (const auto& cell : row.value.is_object() ? row.value : nlohmann::ordered_json::object())
      if (cell.is_string()) cells += (cells.empty() ? "" : ", ") + cell.get<std::string>();
    cells = printable(cells.substr(0, 100));
    if (kind == FirstRow::names) {
      names.push_back(begin);
      log::warning(row.place + ": the first row names the columns, and is no record: " + cells);
    } else if (kind == FirstRow::doubtful) {
      log::warning(row.place + ": the first row is read as a record, though no other has its label: " + cells +
                   "; if it names the columns, use these names in data.text.columns, not numbers");
    }
  }
  for (auto begin = names.rbegin(); begin != names.rend(); ++begin)
    all.records.erase(all.records.begin() + static_cast<std::ptrdiff_t>(*begin));
}

}  // namespace gputrain::records
