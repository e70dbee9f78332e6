#include <algorithm>
#include <string_view>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/file_kind.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "record_file.hpp"

namespace gputrain::records {
namespace {

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  for (size_t begin = 0; (begin = line.find_first_not_of(" \t\r", begin)) != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    cells.emplace_back(line.substr(begin, end - begin));
    begin = end;
  }
  return cells;
}

/// Returns whether a line before the first word of a sentence is no word with a tag: CoNLL-U and others write facts
/// about the sentence there. A sentence may begin with the word #.
bool is_comment(std::string_view line, const std::vector<std::string>& cells) {
  return line.starts_with("# ") && cells.size() > 1 &&
         (line.find('=') != std::string_view::npos || cells[1] == "newdoc" || cells[1] == "newpar");
}

/// Refuses CoNLL-U, which numbers the words in its first column of ten.
void check_has_words(const std::vector<std::string>& cells, const std::string& place) {
  if (cells.size() == 10 && cells.front() == "1")
    throw Error(ExitCode::data, {.what = "the columns are those of CoNLL-U: a number, then the word",
                                 .where = place,
                                 .hint = "write the word and its tag alone, such as columns 2 and 4: "
                                         "cut -f2,4 FILE"});
}

}  // namespace

std::vector<Record> records_of_conll(datasets::TextWindow& text, const RecordFile& file) {
  using Json = nlohmann::ordered_json;
  const FileKind kind = file_kind(text.text());
  if (kind.type != FileType::unknown && kind.type != FileType::text)
    throw Error(ExitCode::data, {.what = std::string(kind.name) + ", not words with tags",
                                 .where = file.path,
                                 .hint = std::string(kind.remedy)});
  const bool has_tags = file.columns.size() > 1;
  std::vector<Record> records;
  Json words = Json::array(), tags = Json::array();
  std::string place, problem;  // place and problem of the sentence; no place: it has no line yet
  const auto end_sentence = [&] {
    if (place.empty()) return;
    Json value = Json::object();
    value[file.columns.at(0)] = std::exchange(words, Json::array());
    if (has_tags) value[file.columns.at(1)] = std::exchange(tags, Json::array());
    records.push_back({std::move(value), std::exchange(place, {}), std::exchange(problem, {})});
  };
  int64_t number = text.line();
  for (auto line = text.next_line(); line; number = text.line(), line = text.next_line()) {
    const std::vector<std::string> cells = cells_of(*line);
    if (cells.empty() || cells.front() == "-DOCSTART-") {
      end_sentence();
      continue;
    }
    if (place.empty() && is_comment(*line, cells)) continue;
    if (place.empty()) place = file.path + ":" + std::to_string(number);
    if (words.empty()) check_has_words(cells, place);
    if (has_tags && cells.size() < 2) {
      problem = "line " + std::to_string(number) + " has a word without a tag";
      continue;
    }
    words.push_back(cells.front());
    tags.push_back(cells.back());
  }
  end_sentence();
  return records;
}

}  // namespace gputrain::records
