#include "masking.hpp"

// Texts in which a mask hides some tokens, for models that guess them.
#include <algorithm>
#include <optional>
#include <utility>

#include "../tokens/encoded_texts.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/batch.hpp"
#include "text_samples.hpp"

namespace gputrain::records {
namespace {

constexpr double kMasked = 0.8, kReplaced = 0.1;  // fractions of the chosen tokens
constexpr int64_t kUsualLength = 512;             // tokens of a sample, if neither model nor job sets more

/// Marks the tokens that continue the word before: those that WordPiece begins with ##; else, for tokenizers that write
/// the space before a word into its first token, those without a space.
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
  bool chosen = false, follows_text = false;  // facts of the token before
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

namespace {

/// Samples with the fields tokens and target, ragged. A text that is longer than a sample becomes several.
class MaskedTexts final : public SampleBuilder {
 public:
  explicit MaskedTexts(const data::DatasetRequest& request)
      : SampleBuilder(request, 1), column_(options().columns.text.value_or("text")) {}

  std::vector<std::string> columns() const override { return {column_}; }

  void read(nlohmann::ordered_json& record, std::vector<Draft>& drafts) const override {
    const auto found = record.find(column_);
    if (found == record.end() || !found->is_string())
      throw Error(ExitCode::data,
                  {.what = "no text in '" + column_ + "' (data.text.columns.text names another column)"});
    drafts.back().texts.push_back({.text = found->get<std::string>()});
  }

  void ready() override { masking_.emplace(options().masking, tokenizer()); }

  std::vector<EncodedSample> encoded(Draft& draft, int64_t most) const override {
    const tokenizers::Frame frame = tokenizer().frame(false);
    const int64_t room = std::max<int64_t>(1, most - std::ssize(frame.before) - std::ssize(frame.behind));
    const std::vector<int64_t> tokens = tokenizer().encode(draft.texts.at(0).text, draft.place);
    if (tokens.empty()) throw Error(ExitCode::data, {.what = "the text is empty"});
    std::vector<EncodedSample> samples;
    for (int64_t begin = 0; begin < std::ssize(tokens); begin += room) {
      const int64_t end = std::min(begin + room, std::ssize(tokens));
      samples.push_back(encoded_sample(framed(tokenizer(), {tokens.begin() + begin, tokens.begin() + end}, {}, most)));
    }
    return samples;
  }

  bool keeps_bad() const override { return false; }
  int64_t usual_length() const override { return kUsualLength; }

  data::SampleLayout layout(const MadeSamples& made) const override {
    data::SampleLayout layout = data::SampleLayout::tokens(made.longest, tokenizer().vocabulary_size());
    for (data::Field& field : layout.fields) field.ragged = true;
    return layout;
  }

  SampleWords words(const MadeSamples&) const override { return {}; }

  void finish_row(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override {
    const auto count = static_cast<size_t>(row.count(0));
    masking_->hide({row.values<int64_t>(0), count}, {row.values<int64_t>(1), count},
                   mix(context.seed, static_cast<uint64_t>(context.augment ? context.epoch : 0)),
                   static_cast<uint64_t>(index));
    row.set_count(1, row.count(0));
  }

 private:
  std::string column_;
  std::optional<Masking> masking_;
};

const RegisteredBuilder<MaskedTexts> registered_masked{Target::masked};

}  // namespace
}  // namespace gputrain::records
