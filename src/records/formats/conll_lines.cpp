#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/file_kind.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "record_file.hpp"

namespace gputrain::records {
namespace {

constexpr std::string_view kDocument = "-DOCSTART-";  // first cell of a line before each document

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

/// Returns whether a cell is a tag of IOB, BIOES or BILOU.
bool is_entity_tag(std::string_view cell) {
  constexpr std::string_view kParts = "BIESLU";
  return cell == "O" || (cell.size() > 2 && cell[1] == '-' && kParts.find(cell[0]) != kParts.npos);
}

/// Returns whether these come again and again, without small letters, as the names of parts of speech do.
bool are_parts_of_speech(const std::map<std::string, int64_t>& tags, int64_t words) {
  constexpr int64_t kFewestWords = 50, kLeastMeanCount = 5;
  const auto is_small = [](unsigned char c) { return std::islower(c) != 0; };
  return words >= kFewestWords && words >= kLeastMeanCount * std::ssize(tags) &&
         std::ranges::none_of(tags, [&](const auto& tag) { return std::ranges::any_of(tag.first, is_small); });
}

}  // namespace

bool is_conll(std::string_view begin, bool is_whole) {
  if (!is_whole) begin = begin.substr(0, begin.rfind('\n') + 1);
  std::map<std::string, int64_t> tags;
  size_t columns = 0;
  int64_t words = 0, sentences = 0;
  bool is_between = true;
  while (!begin.empty()) {
    const size_t end = std::min(begin.find('\n'), begin.size());
    const std::string_view line = begin.substr(0, end);
    begin.remove_prefix(std::min(end + 1, begin.size()));
    const std::vector<std::string> cells = cells_of(line);
    const bool is_end = cells.empty();
    if (!is_end && cells.front() == kDocument) return true;
    if (is_end || (is_between && is_comment(line, cells))) {
      is_between = true;
      continue;
    }
    sentences += is_between ? 1 : 0;
    is_between = false;
    if (columns == 0) columns = cells.size();
    if (columns < 2 || cells.size() != columns) return false;
    ++tags[cells.back()];
    ++words;
  }
  if (sentences < 2) return false;
  const bool has_entities =
      tags.size() > 1 && std::ranges::all_of(tags, [](const auto& tag) { return is_entity_tag(tag.first); });
  return has_entities || are_parts_of_speech(tags, words);
}

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
    if (cells.empty() || cells.front() == kDocument) {
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
