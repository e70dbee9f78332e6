// From files to examples.
#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "encoded_texts.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/content_hash.hpp"
#include "read_all.hpp"
#include "record_dataset.hpp"
#include "samples_by_use.hpp"

namespace gputrain::records {
namespace {

/// What a record became, or why it became nothing.
struct Outcome {
  std::vector<uint32_t> tokens;  // Example::stored()
  bool is_document = false;
  std::string problem;
};

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

BadRecords bad_of(const Examples& examples) {
  BadRecords bad{.count = examples.bad_count(), .of = examples.size()};
  if (bad.count == 0) return bad;
  const Examples::Problem& first = examples.problems().begin()->second;
  bad.first_what = first.what;
  bad.first_where = first.where;
  return bad;
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
    if (train != nullptr || !is_tokenizer_built_from_texts(request)) tokenizer_ = tokenizer_for(request, {});
  }

  void read(ReadRecords read_records, const std::string& extension) {
    AllRecords all_records =
        read_all(request_, read_records, extension, {.path = {}, .columns = columns_of_texts(options_)});
    records_ = std::move(all_records.records);
    files_ = std::move(all_records.files);
    for (const Record& record : records_)
      outcomes_.push_back({.tokens = {}, .is_document = false, .problem = record.problem});
    const RecordTexts texts(options_, tokenizer_ ? tokenizer_->folder() : std::filesystem::path());
    // Nothing is kept longer than it is needed: text takes more memory than its tokens.
    const auto text_of = [&](size_t i) { return texts.of(std::exchange(records_[i].value, nullptr)); };
    if (tokenizer_) {
      for_each_good(outcomes_, [&](size_t i) { encode(i, text_of(i)); });
      return;
    }
    std::vector<LearnedText> all(records_.size());
    for_each_good(outcomes_, [&](size_t i) { all[i] = text_of(i); });
    tokenizer_ = tokenizer_for(request_, texts_of(all));
    for_each_good(outcomes_, [&](size_t i) { encode(i, all[i]); });
  }

  ExampleSource source(const RecordDataset* train) const {
    ExampleSource source{.tokenizer = tokenizer_, .files = files_, .length = length(train), .packs = options_.packing};
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
  std::string files_;
  std::vector<Outcome> outcomes_;
};

}  // namespace

std::shared_ptr<const ExampleSource> open_records(const data::DatasetRequest& request, ReadRecords read_records,
                                                  const std::string& extension) {
  const auto* train = samples_of<RecordDataset>(request.train);
  Reading reading(request, train);
  reading.read(read_records, extension);
  ExampleSource source = reading.source(train);
  source.content_hash =
      data::content_hash(1, [&](int64_t) { return data::content_of(std::as_bytes(source.examples.raw())); });
  check_bad(bad_of(source.examples), request);
  check_learned(source, request);
  return std::make_shared<const ExampleSource>(std::move(source));
}

}  // namespace gputrain::records
