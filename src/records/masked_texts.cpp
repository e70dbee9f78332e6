#include "masked_texts.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "gputrain/core/batch.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/content_hash.hpp"
#include "read_all.hpp"

namespace gputrain::records {
namespace {

constexpr double kMasked = 0.8, kReplaced = 0.1;  // of the chosen tokens
constexpr int64_t kUsualLength = 512;             // tokens of a sample, where neither model nor job says more

/// Which tokens continue the word before: those that WordPiece begins with ##; else, of tokenizers that write the space
/// before a word into its first token, those without a space.
std::vector<bool> continuing_tokens(const std::vector<std::string>& texts) {
  const bool is_word_piece = std::ranges::any_of(texts, [](const auto& text) { return text.starts_with("##"); });
  std::vector<bool> continues;
  for (const std::string& text : texts)
    continues.push_back(is_word_piece ? text.starts_with("##")
                                      : !text.empty() && text.front() != ' ' && !text.starts_with("\u2581"));
  return continues;
}

}  // namespace

Masking::Masking(const data::MaskingOptions& options, const tokenizers::Tokenizer& tokenizer)
    : options_(options), mask_(0), vocabulary_(tokenizer.vocabulary_size()) {
  const auto mask = tokenizer.mask_token();
  if (!mask)
    throw Error(ExitCode::usage, {.what = "the tokenizer has no token for a mask",
                                  .where = "data.text.tokenizer",
                                  .hint = "words, or published: the tokenizer of an encoder, with [MASK] or <mask>"});
  mask_ = *mask;
  for (int64_t token = 0; token < vocabulary_; ++token) is_special_.push_back(tokenizer.is_special(token));
  if (options_.whole_words) continues_word_ = continuing_tokens(tokenizer.token_texts());
}

void Masking::hide(std::span<int64_t> tokens, std::span<int64_t> targets, uint64_t seed, uint64_t stream) const {
  RandomStream random(seed, stream);
  bool chosen = false, follows_text = false;  // of the token before
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<size_t>(tokens[i]);
    targets[i] = kIgnoreIndex;
    if (is_special_[token]) {
      follows_text = false;
      continue;
    }
    const bool continues = options_.whole_words && follows_text && continues_word_[token];
    if (!continues) chosen = random.uniform() < options_.fraction;
    follows_text = true;
    if (!chosen) continue;
    targets[i] = tokens[i];
    const double share = random.uniform();
    if (share < kMasked) {
      tokens[i] = mask_;
    } else if (share < kMasked + kReplaced) {
      tokens[i] = random.below(vocabulary_);
    }
  }
}

MaskedTexts::MaskedTexts(const data::DatasetRequest& request, std::vector<Text> texts, std::string files,
                         const MaskedTexts* train)
    : files_(std::move(files)) {
  if (train == nullptr && is_tokenizer_built_from_texts(request)) {
    std::vector<std::string> all;
    for (const Text& text : texts) all.push_back(text.text);
    tokenizer_ = tokenizer_for(request, all);
  } else {
    tokenizer_ = tokenizer_for(request, {});
  }
  const data::TextOptions options = request.text != nullptr ? *request.text : data::TextOptions();
  masking_ = std::make_unique<Masking>(options.masking, *tokenizer_);
  const tokenizers::Frame frame = tokenizer_->frame(false);
  const auto around = static_cast<int64_t>(frame.before.size() + frame.behind.size());
  const int64_t most = train != nullptr              ? train->layout_.token_count()
                       : request.sequence_length > 0 ? request.sequence_length
                                                     : kUsualLength;
  const int64_t room = std::max<int64_t>(1, most - around);

  struct Outcome {
    std::vector<int64_t> tokens;
    std::string problem;
  };
  std::vector<Outcome> outcomes(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) outcomes[i].problem = texts[i].problem;
  for_each_good(outcomes, [&](size_t i) {
    outcomes[i].tokens = tokenizer_->encode(std::exchange(texts[i].text, {}), texts[i].place);
    if (outcomes[i].tokens.empty()) outcomes[i].problem = "the text is empty";
  });
  int64_t longest = 1;
  BadRecords bad{.count = 0, .of = std::ssize(outcomes)};
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (!outcomes[i].problem.empty()) {
      if (bad.count++ == 0) {
        bad.first_what = outcomes[i].problem;
        bad.first_where = texts[i].place;
      }
      continue;
    }
    const auto& tokens = outcomes[i].tokens;
    for (int64_t begin = 0; begin < std::ssize(tokens); begin += room) {
      const int64_t end = std::min(begin + room, std::ssize(tokens));
      const FramedTexts sample = framed(*tokenizer_, {tokens.begin() + begin, tokens.begin() + end}, {}, most);
      longest = std::max(longest, std::ssize(sample.tokens));
      texts_.add(sample);
    }
  }
  check_bad(bad, request);
  content_hash_ = data::content_hash(1, [&](int64_t) { return data::content_of(std::as_bytes(texts_.all())); });
  layout_ = train != nullptr ? train->layout_ : data::SampleLayout::tokens(longest, tokenizer_->vocabulary_size());
  for (data::Field& field : layout_.fields) field.ragged = true;
}

int64_t MaskedTexts::length(int64_t index) const { return texts_.length(index); }

void MaskedTexts::read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const {
  auto *tokens = row.values<int64_t>(0), *targets = row.values<int64_t>(1);
  const int64_t count = texts_.length(index);
  texts_.read(index, tokens, nullptr);
  const auto size = static_cast<size_t>(count);
  masking_->hide({tokens, size}, {targets, size},
                 mix(context.seed, static_cast<uint64_t>(context.augment ? context.epoch : 0)),
                 static_cast<uint64_t>(index));
  row.set_count(0, count);
  row.set_count(1, count);
}

std::string MaskedTexts::describe() const {
  return fmt::format("{} of {}, {}, at most {} each", counted(size(), "text"), files_,
                     counted(std::ssize(texts_.all()), "token"), grouped(layout_.token_count()));
}

}  // namespace gputrain::records
