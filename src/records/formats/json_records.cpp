#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/file_kind.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/datasets/parallel_for.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "record_file.hpp"

namespace gputrain::records {
namespace {

using datasets::TextWindow;
using Json = nlohmann::ordered_json;

constexpr size_t kBlock = size_t{16} << 20;
constexpr std::string_view kBlanks = " \t\r\n";

/// The depth of brackets in JSON text, character by character.
struct Depth {
  int open = 0;
  bool in_string = false, is_escaped = false;

  void add(char c) {
    if (is_escaped) {
      is_escaped = false;
    } else if (in_string) {
      is_escaped = c == '\\';
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++open;
    } else if (c == ']' || c == '}') {
      --open;
    }
  }
};

/// Returns "(column 27)", or "(line 14, column 3)" if the value has several lines; `line` is that of its first.
std::string place_in(std::string_view text, size_t at, int64_t line) {
  const std::string_view before = text.substr(0, at);
  const auto lines = std::ranges::count(before, '\n');
  const std::string column = "column " + std::to_string(at - (before.rfind('\n') + 1) + 1);
  const bool is_one_line = text.find('\n') == std::string_view::npos;
  return " (" + (is_one_line ? "" : "line " + std::to_string(line + lines) + ", ") + column + ")";
}

/// Returns the parser's reason to refuse the text, and the place.
std::string reason_against(std::string_view text, int64_t line) {
  try {
    const Json parsed = Json::parse(text);
  } catch (const Json::parse_error& error) {
    const size_t at = std::min(error.byte == 0 ? 0 : error.byte - 1, text.size());
    const size_t word = text.find_last_of("-,:[{ \t\r\n", at);
    const std::string_view begin = text.substr(word == std::string_view::npos ? 0 : word + 1);
    if (begin.starts_with("NaN") || begin.starts_with("Infinity"))
      return std::string(begin.substr(0, begin[0] == 'N' ? 3 : 8)) + " is no JSON, though Python writes it; use null" +
             place_in(text, at, line);
    std::string reason = error.what();
    if (const size_t dash = reason.find(" - "); dash != std::string::npos) reason.erase(0, dash + 3);
    return printable(reason.substr(0, 160)) + place_in(text, at, line);
  }
  return {};
}

struct Piece {
  std::string_view text;
  int64_t line = 0;
};

void parse_into(Record& record, const Piece& piece) {
  const bool is_deep = is_nested_too_deep(piece.text);
  record.value =
      is_deep ? Json(Json::value_t::discarded) : Json::parse(piece.text, nullptr, /*allow_exceptions=*/false);
  if (is_deep) {
    record.problem = "no JSON object but brackets within brackets, " + std::to_string(kMostJsonDepth) + " deep";
  } else if (record.value.is_discarded()) {
    record.problem = "not JSON: " + reason_against(piece.text, piece.line);
  } else if (!record.value.is_object()) {
    record.problem = "no JSON object but " + std::string(record.value.type_name());
  }
}

/// Parses the pieces that were found, and hands the records over.
void hand_over(std::vector<Piece>& pieces, std::vector<Record>& records, const TakeRecords& take) {
  datasets::parallel_for(pieces.size(), [&](size_t i) { parse_into(records[i], pieces[i]); });
  pieces.clear();
  take(std::exchange(records, {}));
}

[[noreturn]] void refuse(const TextWindow& text, const std::string& what, const std::string& hint = {},
                         int64_t line = 0) {
  throw Error(ExitCode::data,
              {.what = what, .where = text.path() + (line == 0 ? "" : ":" + std::to_string(line)), .hint = hint});
}

/// Refuses a file that is no JSON, which would else be a thousand bad samples.
void check_kind(const TextWindow& text) {
  const FileKind kind = file_kind(text.text());
  if (kind.type != FileType::unknown && kind.type != FileType::text)
    refuse(text, std::string(kind.name) + ", not JSON", std::string(kind.remedy));
}

void skip_blanks(TextWindow& text) {
  while (true) {
    text.consume(std::min(text.text().find_first_not_of(kBlanks), text.text().size()));
    if (!text.text().empty() || !text.has_more()) return;
    text.grow();
  }
}

/// Returns the length of the value with which the text begins; empty: its end is not there.
std::optional<size_t> length_of_value(std::string_view text) {
  Depth depth;
  for (size_t i = 0; i < text.size(); ++i) {
    if (depth.open <= 0 && !depth.in_string && (text[i] == ',' || text[i] == ']')) return i;
    depth.add(text[i]);
    if (depth.open <= 0 && !depth.in_string && text[i] == '}') return i + 1;
  }
  return std::nullopt;
}

/// Refuses one object over several lines, and names the list in it.
void refuse_document(TextWindow& text) {
  constexpr size_t kMost = size_t{64} << 20;
  const auto first_line = [&] { return text.text().substr(0, text.text().find('\n')); };
  if (!text.text().starts_with('{') || Json::accept(first_line())) return;
  while (text.has_more() && text.text().size() < kMost && !length_of_value(text.text())) text.grow();
  const std::string_view all = text.text();
  const auto length = length_of_value(all);
  if (!length || *length <= first_line().size() || is_nested_too_deep(all.substr(0, *length))) return;
  const Json document = Json::parse(all.substr(0, *length), nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return;
  if (all.find_first_not_of(kBlanks, *length) != std::string_view::npos)
    refuse(text, "JSON objects over several lines, not one in each line", "jq -c . FILE > FILE.jsonl");
  for (const auto& [key, value] : document.items())
    if (value.is_array() && !value.empty() && value[0].is_object())
      refuse(text, "one JSON object, not a list of them; its '" + printable(key.substr(0, 60)) + "' has a list",
             "jq -c '.[\"" + printable(key.substr(0, 60)) + "\"][]' FILE > FILE.jsonl writes it as lines");
  refuse(text, "one JSON object, not a list of them, nor one in each line", R"({"text": "..."} in each line)");
}

void read_lines(TextWindow& text, const TakeRecords& take) {
  refuse_document(text);
  std::vector<Piece> pieces;
  std::vector<Record> records;
  while (!text.text().empty() || text.has_more()) {
    const size_t last = text.text().rfind('\n');
    if (text.has_more() && (text.text().size() < kBlock || last == std::string_view::npos)) {
      text.grow();
      continue;
    }
    const std::string_view block = text.has_more() ? text.text().substr(0, last + 1) : text.text();
    int64_t number = text.line();
    for (size_t begin = 0; begin < block.size(); ++number) {
      const size_t end = std::min(block.find('\n', begin), block.size());
      const std::string_view line = block.substr(begin, end - begin);
      begin = end + 1;
      if (line.find_first_not_of(kBlanks) == std::string_view::npos) continue;
      pieces.push_back({line, number});
      records.push_back({.value = {}, .place = text.path() + ":" + std::to_string(number), .problem = {}});
    }
    hand_over(pieces, records, take);
    text.consume(block.size());
  }
}

/// Reader of the elements of a list, behind its bracket.
class ListReader {
 public:
  ListReader(TextWindow& text, const TakeRecords& take) : text_(text), take_(take), begin_(text.line()) {}

  void read() {
    while (true) {
      const size_t done = take_elements();
      hand_over(pieces_, records_, take_);
      text_.consume(done);
      if (is_closed_) break;
      if (!text_.has_more()) refuse(text_, "the JSON list is cut off: it is not closed", {}, begin_);
      text_.grow();
    }
    skip_blanks(text_);
    if (!text_.text().empty()) refuse(text_, "text behind the end of the JSON list", {}, text_.line());
  }

 private:
  /// Takes the whole elements of the part in memory, and returns their length.
  size_t take_elements() {
    const std::string_view all = text_.text();
    size_t done = 0, counted = 0;
    int64_t line = text_.line();
    while (true) {
      size_t at = all.find_first_not_of(kBlanks, done);
      if (at == std::string_view::npos) return done;
      line += std::ranges::count(all.substr(counted, at - counted), '\n');
      counted = at;
      if (all[at] == ']' || all[at] == ',') {
        check_turn(all[at], line);
        done = at + 1;
        if (is_closed_) return done;
        continue;
      }
      const auto length = length_of_value(all.substr(at));
      if (!length) return done;
      if (!wants_element_) refuse(text_, "a comma is missing between two elements of the JSON list", {}, line);
      begin_ = line;
      wants_element_ = false;
      pieces_.push_back({all.substr(at, *length), line});
      records_.push_back(
          {.value = {},
           .place = text_.path() + ":" + std::to_string(line) + " (item " + std::to_string(++count_) + ")",
           .problem = {}});
      done = at + *length;
    }
  }

  /// Checks that a comma comes behind an element, and the end behind an element or at once.
  void check_turn(char c, int64_t line) {
    if (wants_element_ && !(c == ']' && count_ == 0))
      refuse(text_, "an element of the JSON list is missing before '" + std::string(1, c) + "'", {}, line);
    is_closed_ = c == ']';
    wants_element_ = true;
  }

  TextWindow& text_;
  const TakeRecords& take_;
  std::vector<Piece> pieces_;
  std::vector<Record> records_;
  int64_t begin_;      // line of the newest element
  int64_t count_ = 0;  // elements so far
  bool wants_element_ = true, is_closed_ = false;
};

}  // namespace

void read_json(TextWindow& text, const TakeRecords& take) {
  check_kind(text);
  skip_blanks(text);
  if (text.text().empty()) refuse(text, "the file is empty");
  if (!text.text().starts_with('[')) return read_lines(text, take);
  text.consume(1);
  ListReader(text, take).read();
}

std::vector<Record> records_of_json(TextWindow& text, const RecordFile&) {
  std::vector<Record> all;
  read_json(text, [&](std::vector<Record> some) {
    if (all.empty()) {
      all = std::move(some);
    } else {
      std::ranges::move(some, std::back_inserter(all));
    }
  });
  if (all.empty()) refuse(text, "the JSON list is empty");
  if (std::ranges::all_of(all, [](const Record& record) { return !record.problem.empty(); }))
    refuse(text, "there is no JSON object, in the lines or in a list; the first is " + all[0].problem,
           R"({"text": "..."} in each line)");
  return all;
}

bool is_json_records(std::string_view begin, bool is_whole) {
  begin.remove_prefix(std::min(begin.find_first_not_of(kBlanks), begin.size()));
  if (begin.starts_with('[')) {
    begin.remove_prefix(1);
    begin.remove_prefix(std::min(begin.find_first_not_of(kBlanks), begin.size()));
    const auto length = begin.starts_with('{') ? length_of_value(begin) : std::nullopt;
    return length && Json::accept(begin.substr(0, *length));
  }
  for (int lines = 0; lines < 2; ++lines) {
    const size_t end = begin.find('\n');
    if (!begin.starts_with('{') || (end == std::string_view::npos && !is_whole)) return false;
    const std::string_view line = begin.substr(0, end);
    if (is_nested_too_deep(line) || !Json::accept(line)) return false;
    begin.remove_prefix(std::min(begin.find_first_not_of(kBlanks, line.size()), begin.size()));
    if (begin.empty()) return is_whole;
  }
  return true;
}

}  // namespace gputrain::records
