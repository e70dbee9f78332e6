#include "tagged_texts.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "gputrain/core/batch.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/data/content_hash.hpp"
#include "labels.hpp"
#include "read_all.hpp"

namespace gputrain::records {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

TaggedTexts::TaggedTexts(const data::DatasetRequest& request, std::vector<Text> texts, std::string files,
                         const TaggedTexts* train)
    : files_(std::move(files)) {
  if (train == nullptr && is_tokenizer_built_from_texts(request)) {
    std::vector<std::string> all;
    for (const Text& text : texts) all.push_back(" " + joined(text.words));
    tokenizer_ = tokenizer_for(request, all);
  } else {
    tokenizer_ = tokenizer_for(request, {});
  }
  std::vector<std::string> tags;
  if (train != nullptr) {
    tags = train->classes_;
  } else {
    for (const Text& text : texts) tags.insert(tags.end(), text.tags.begin(), text.tags.end());
  }
  const ClassNames classes(std::move(tags));
  classes_ = classes.names();
  std::vector<Outcome> outcomes(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) outcomes[i].problem = texts[i].problem;
  for_each_good(outcomes, [&](size_t i) { outcomes[i] = encoded(texts[i], classes); });
  const int64_t most = train != nullptr              ? train->layout_.token_count()
                       : request.sequence_length > 0 ? request.sequence_length
                                                     : std::numeric_limits<int32_t>::max();
  store(outcomes, texts, request, most);
  if (train != nullptr) layout_ = train->layout_;
}

/// Each word is encoded by itself, with the space before it that some tokenizers write into its first token.
TaggedTexts::Outcome TaggedTexts::encoded(const Text& text, const ClassNames& classes) const {
  if (text.words.empty()) throw Error(ExitCode::data, {.what = "there is no word"});
  if (text.words.size() != text.tags.size())
    throw Error(ExitCode::data,
                {.what = counted(std::ssize(text.words), "word") + " with " + counted(std::ssize(text.tags), "tag")});
  Outcome outcome;
  for (size_t i = 0; i < text.words.size(); ++i) {
    const auto tokens = tokenizer_->encode(" " + text.words[i], text.place);
    if (tokens.empty())
      throw Error(ExitCode::data, {.what = "the word '" + printable(text.words[i].substr(0, 60)) + "' has no token"});
    outcome.tokens.insert(outcome.tokens.end(), tokens.begin(), tokens.end());
    outcome.targets.push_back(classes.number_of(text.tags[i]));
    outcome.targets.resize(outcome.tokens.size(), kIgnoreIndex);
  }
  return outcome;
}

void TaggedTexts::store(std::vector<Outcome>& outcomes, const std::vector<Text>& texts,
                        const data::DatasetRequest& request, int64_t most) {
  const tokenizers::Frame frame = tokenizer_->frame(false);
  const auto before = std::ssize(frame.before), behind = std::ssize(frame.behind);
  int64_t longest = 1, cut = 0, longest_uncut = 0;
  BadRecords bad{.count = 0, .of = std::ssize(outcomes)};
  for (size_t i = 0; i < outcomes.size(); ++i) {
    Outcome& outcome = outcomes[i];
    begins_.push_back(std::ssize(targets_));
    if (!outcome.problem.empty()) {
      if (bad.count++ == 0) {
        bad.first_what = outcome.problem;
        bad.first_where = texts[i].place;
      }
      problems_[static_cast<int64_t>(i)] = {outcome.problem, texts[i].place};
      texts_.add_bad();
      continue;
    }
    const FramedTexts sample = framed(*tokenizer_, std::move(outcome.tokens), {}, most);
    const auto size = std::ssize(sample.tokens);
    texts_.add(sample);
    longest = std::max(longest, size);
    longest_uncut = std::max(longest_uncut, sample.full_size);
    if (sample.full_size > size) ++cut;
    for (int64_t at = 0; at < size; ++at) {
      const bool is_text = at >= before && at < size - behind;
      targets_.push_back(is_text ? static_cast<int32_t>(outcome.targets[static_cast<size_t>(at - before)])
                                 : kIgnoreIndex);
    }
  }
  check_bad(bad, request);
  if (cut > 0)
    log::warning(
        fmt::format("{}: cut {} of {} after {} tokens, and their last words are not learned; the longest has "
                    "{}; data.text.max_length sets the limit",
                    request.path, grouped(cut), counted(size(), "text"), grouped(most), grouped(longest_uncut)));
  content_hash_ = data::content_hash(2, [&](int64_t part) {
    return data::content_of(part == 0 ? std::as_bytes(texts_.all())
                                      : std::as_bytes(std::span<const int32_t>(targets_)));
  });
  layout_ = data::SampleLayout::tokens(longest, std::ssize(classes_));
  layout_.vocabulary = tokenizer_->vocabulary_size();
  for (data::Field& field : layout_.fields) field.ragged = true;
}

int64_t TaggedTexts::length(int64_t index) const { return std::max<int64_t>(1, texts_.length(index)); }

void TaggedTexts::read(int64_t index, const data::ReadContext&, const data::SampleRow& row) const {
  if (const auto problem = problems_.find(index); problem != problems_.end())
    throw Error(ExitCode::data, {.what = problem->second.first, .where = problem->second.second});
  const int64_t count = texts_.length(index);
  texts_.read(index, row.values<int64_t>(0), nullptr);
  std::copy_n(targets_.begin() + begins_[static_cast<size_t>(index)], count, row.values<int64_t>(1));
  row.set_count(0, count);
  row.set_count(1, count);
}

std::string TaggedTexts::describe() const {
  return fmt::format("{} of {}, {}, at most {} each, {} of words", counted(size(), "text"), files_,
                     counted(std::ssize(texts_.all()), "token"), grouped(layout_.token_count()),
                     counted(std::ssize(classes_), "class"));
}

}  // namespace gputrain::records
