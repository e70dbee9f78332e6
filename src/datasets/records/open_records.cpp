// From files to examples.
#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include <fmt/format.h>
#include "../file_list.hpp"
#include "../parallel_for.hpp"
#include "../text_file.hpp"
#include "../token_windows.hpp"

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/content_hash.hpp"
#include "record_dataset.hpp"

namespace gputrain::datasets {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of(const data::DatasetRequest& request, const std::string& extension) {
  std::error_code ignored;
  if (!fs::is_directory(request.path, ignored)) return expand_pattern(request.path);
  std::vector<std::string> files =
      list_folder(request.path, {{"*" + extension, "*" + extension + ".gz"}, {}}, request.own_folders).files;
  if (files.empty())
    throw Error(ExitCode::data, {.what = "no " + extension + " file in this folder", .where = request.path});
  for (std::string& file : files) file = (fs::path(request.path) / file).string();
  return files;
}

/// What a record became, or why it became nothing.
struct Outcome {
  std::vector<uint32_t> tokens;  // Example::stored()
  bool is_document = false;
  std::string problem;
};

/// The message of an error of a record, without its place, which is told apart.
std::string message_of(const Error& error) {
  const Error::Parts& parts = error.parts();
  return parts.what + (parts.hint.empty() ? "" : " (" + parts.hint + ")");
}

/// Does `work` for each record that can be read. A record's own mistake stays with it; others end the whole.
template <class Work>
void for_each(std::vector<Outcome>& outcomes, const Work& work) {
  parallel_for(outcomes.size(), [&](size_t i) {
    if (!outcomes[i].problem.empty()) return;
    try {
      work(i);
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      outcomes[i].problem = message_of(error);
    }
  });
}

/// Adds an example, in pieces if it is too long and a document. Returns whether tokens were lost.
bool add_fitting(Examples& examples, const Outcome& outcome, int64_t length) {
  const std::span all(outcome.tokens);
  const size_t most = static_cast<size_t>(length);
  if (all.size() > most && !outcome.is_document) {
    examples.add(all.first(most));
    return true;
  }
  for (size_t begin = 0; begin + 1 < all.size(); begin += most)
    examples.add(all.subspan(begin, std::min(most, all.size() - begin)));
  return false;
}

struct LongTexts {
  int64_t count = 0, longest = 0;
};

void warn_of_long(const LongTexts& cut, int64_t all, int64_t length, const data::DatasetRequest& request) {
  if (cut.count == 0) return;
  const bool is_set = request.text != nullptr && request.text->max_length.value.has_value();
  log::warning(fmt::format("{}: cut {} of {} after {} tokens ({}); the longest has {}", request.path,
                           grouped(cut.count), counted(all, "sample"), grouped(length),
                           is_set ? "data.text.max_length"
                           : request.role == data::Split::train
                               ? "the most that the model takes"
                               : "as those of data.train; data.text.max_length sets it",
                           grouped(cut.longest)));
}

/// Refuses now what would otherwise end a run in the middle.
void check_bad(const Examples& examples, const data::DatasetRequest& request) {
  if (examples.bad_count() == 0) return;
  const Examples::Problem& first = examples.problems().begin()->second;
  const std::string count = counted(examples.bad_count(), "record") + " of " + grouped(examples.size());
  const bool is_few =
      static_cast<double>(examples.bad_count()) <= request.max_bad_fraction * static_cast<double>(examples.size());
  if (!is_few)
    throw Error(ExitCode::data, {.what = first.what + "; " + count + " cannot be used",
                                 .where = first.where,
                                 .hint = "repair or remove it, or set data.max_bad_fraction to skip a few"});
  log::warning(count + " cannot be used and are skipped; the first is " + first.where + ": " + first.what);
}

void check_learned(const ExampleSource& source, const data::DatasetRequest& request) {
  int64_t nothing = 0;
  for (int64_t i = 0; i < source.examples.size(); ++i) {
    if (source.examples.length(i) > 0 && source.examples.learned_count(i) == 0) ++nothing;
  }
  if (nothing == source.examples.size() - source.examples.bad_count())
    throw Error(ExitCode::data,
                {.what = "nothing is learned from any text: no part that counts lies within the first " +
                         counted(source.length, "token"),
                 .where = request.path,
                 .hint = "data.text.max_length, or data.text.loss_on"});
  if (nothing > 0)
    log::warning(request.path + ": nothing is learned from " + counted(nothing, "text") +
                 ": no part that counts lies within the first " + counted(source.length, "token"));
}

/// Texts and tokens of all records.
class Reading {
 public:
  Reading(const data::DatasetRequest& request, const RecordDataset* train)
      : request_(request), options_(request.text != nullptr ? *request.text : data::TextOptions()) {
    if (train != nullptr) tokenizer_ = train->tokenizer();
    if (!tokenizer_ && options_.tokenizer.name != kBuiltFromTexts) tokenizer_ = made({});
  }

  void read(const std::vector<std::string>& paths, ReadRecords read_records) {
    int64_t bytes_left = kMostTextBytes;
    RecordFile file{.path = {}, .columns = columns_of_texts(options_)};
    for (const std::string& path : paths) {
      file.path = path;
      for (Record& record : read_records(file, bytes_left)) records_.push_back(std::move(record));
    }
    if (records_.empty()) throw Error(ExitCode::data, {.what = "there is no record", .where = request_.path});
    for (const Record& record : records_)
      outcomes_.push_back({.tokens = {}, .is_document = false, .problem = record.problem});
    const RecordTexts texts(options_, tokenizer_ ? tokenizer_->folder() : fs::path());
    // Nothing is kept longer than it is needed: text takes more memory than its tokens.
    const auto text_of = [&](size_t i) { return texts.of(std::exchange(records_[i].value, nullptr)); };
    if (tokenizer_) {
      for_each(outcomes_, [&](size_t i) { encode(i, text_of(i)); });
      return;
    }
    std::vector<LearnedText> all(records_.size());
    for_each(outcomes_, [&](size_t i) { all[i] = text_of(i); });
    tokenizer_ = made(texts_of(all));
    for_each(outcomes_, [&](size_t i) { encode(i, all[i]); });
  }

  ExampleSource source(const RecordDataset* train) const {
    ExampleSource source{.tokenizer = tokenizer_, .length = length(train), .packs = options_.packing};
    LongTexts cut;
    for (size_t i = 0; i < outcomes_.size(); ++i) {
      if (!outcomes_[i].problem.empty()) {
        source.examples.add_bad({outcomes_[i].problem, records_[i].place});
      } else if (add_fitting(source.examples, outcomes_[i], source.length)) {
        ++cut.count;
        cut.longest = std::max(cut.longest, std::ssize(outcomes_[i].tokens));
      }
    }
    warn_of_long(cut, source.examples.size(), source.length, request_);
    return source;
  }

 private:
  static constexpr const char* kBuiltFromTexts = "characters";

  void encode(size_t i, const LearnedText& text) {
    Outcome& outcome = outcomes_[i];
    outcome.tokens = example_of(text, *tokenizer_, records_[i].place).stored();
    outcome.is_document = text.is_document;
    if (outcome.tokens.size() < 2) outcome.problem = "less than two tokens: nothing to predict";
  }

  static std::vector<std::string> texts_of(const std::vector<LearnedText>& all) {
    std::vector<std::string> texts;
    for (const LearnedText& each : all) texts.push_back(each.text);
    return texts;
  }

  std::shared_ptr<const tokenizers::Tokenizer> made(const std::vector<std::string>& texts) const {
    const auto& catalog = tokenizers::catalog();
    config::Choice choice = options_.tokenizer;
    if (!choice.options) choice = catalog.with_defaults(choice.name);
    const std::vector<std::string> names(texts.size(), request_.path);
    return catalog.make(choice, {.texts = texts, .names = names, .pretrained = request_.pretrained});
  }

  /// The most tokens of a sample. What the job sets is the length of packed rows; otherwise it is a limit.
  int64_t length(const RecordDataset* train) const {
    if (train != nullptr) return train->source().length;
    const int64_t most = request_.sequence_length;
    if (options_.packing && options_.max_length.value) return most;
    int64_t longest = 2;
    for (const Outcome& outcome : outcomes_) longest = std::max(longest, std::ssize(outcome.tokens));
    return most > 0 ? std::min(most, longest) : longest;
  }

  const data::DatasetRequest& request_;
  data::TextOptions options_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  std::vector<Record> records_;
  std::vector<Outcome> outcomes_;
};

}  // namespace

std::shared_ptr<const ExampleSource> open_records(const data::DatasetRequest& request, ReadRecords read_records,
                                                  const std::string& extension) {
  if (!request.model.reads_tokens()) window_length(request);  // says why not
  const std::vector<std::string> paths = files_of(request, extension);
  request.tell_files(paths);
  const auto* train = dynamic_cast<const RecordDataset*>(request.train);
  Reading reading(request, train);
  reading.read(paths, read_records);
  ExampleSource source = reading.source(train);
  source.files = counted(std::ssize(paths), "file");
  source.content_hash =
      data::content_hash(1, [&](int64_t) { return data::content_of(std::as_bytes(source.examples.raw())); });
  check_bad(source.examples, request);
  check_learned(source, request);
  return std::make_shared<const ExampleSource>(std::move(source));
}

}  // namespace gputrain::datasets
