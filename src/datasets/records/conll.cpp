// CoNLL's files: a word and its tag per line, an empty line after each sentence.
#include <utility>

#include "../text_file.hpp"
#include "../token_windows.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "read_all.hpp"
#include "samples_of_records.hpp"

namespace gputrain::datasets {
namespace {

struct ConllSpec {
  static void describe(config::Description<ConllSpec>& d) {
    d.summary(
        "a word per line, with its tag in the last column, separated by spaces or tabs; an empty line ends a sentence");
  }
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t begin = 0; (begin = line.find_first_not_of(" \t\r", begin)) != std::string::npos;) {
    const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    cells.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return cells;
}

}  // namespace

std::vector<Record> records_of_conll(const RecordFile& file, int64_t& bytes_left) {
  const std::string text = read_text(file.path, bytes_left);
  bytes_left -= std::ssize(text);
  const bool has_tags = file.columns.size() > 1;
  std::vector<Record> records;
  std::vector<std::string> words, tags;
  Record sentence;
  int64_t number = 0;
  const auto end_sentence = [&] {
    if (!sentence.place.empty()) {
      sentence.value[file.columns.at(0)] = std::exchange(words, {});
      if (has_tags) sentence.value[file.columns.at(1)] = std::exchange(tags, {});
      records.push_back(std::move(sentence));
    }
    sentence = {};
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::vector<std::string> cells = cells_of(text.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (cells.empty() || cells.front() == "-DOCSTART-") {
      end_sentence();
      continue;
    }
    if (sentence.place.empty())
      sentence = {
          .value = nlohmann::ordered_json::object(), .place = file.path + ":" + std::to_string(number), .problem = {}};
    if (has_tags && cells.size() < 2) {
      sentence.problem = "line " + std::to_string(number) + " has a word without a tag";
      continue;
    }
    words.push_back(cells.front());
    tags.push_back(cells.back());
  }
  end_sentence();
  return records;
}

namespace {

struct Conll final : SamplesByUse {
  Conll(const ConllSpec&, const data::DatasetRequest& request)
      : SamplesByUse(samples_of_records(checked(request), records_of_conll, ".conll")) {}

  static const data::DatasetRequest& checked(const data::DatasetRequest& request) {
    if (request.model.reads_tokens() && request.model.use != TextUse::tags)
      throw Error(ExitCode::usage, {.what = "CoNLL's files have words with tags, and this model learns no tags",
                                    .where = "data.train.format",
                                    .hint = "model: {type: bert, config: {head: tagger}}"});
    return request;
  }
};

const config::Registered<Conll, ConllSpec> registered_conll{data::catalog(), "conll", "words with tags, one per line"};

}  // namespace
}  // namespace gputrain::datasets
