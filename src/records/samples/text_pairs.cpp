// Pairs of texts for embedders: alike, or with a number for their likeness; perhaps with others that are not alike.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "../labels.hpp"
#include "../tokens/encoded_texts.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/batch.hpp"
#include "gputrain/data/negative_fields.hpp"
#include "text_samples.hpp"

namespace gputrain::records {
namespace {

using PairRecord = nlohmann::ordered_json;

constexpr size_t kPartners = 2;  // texts that are alike
constexpr int kMostNegatives = 64;

/// Possible names of a column.
using Names = std::vector<std::string>;

/// Returns the name under which a record has a column; none: it has no such column.
std::optional<std::string> name_in(const PairRecord& record, const Names& names) {
  const auto found = std::ranges::find_if(names, [&](const std::string& name) {
    const auto value = record.find(name);
    return value != record.end() && !value->is_null();
  });
  return found == names.end() ? std::nullopt : std::optional(*found);
}

/// Samples with the fields tokens, pair_tokens and, if records have them, negative_tokens, ragged; target, a float, if
/// records have a number. The columns are those of sentence-transformers' examples.
class TextPairs final : public SampleBuilder {
 public:
  explicit TextPairs(const data::DatasetRequest& request) : SampleBuilder(request, kPartners) {
    const data::ColumnNames& given = options().columns;
    const auto names = [](const std::optional<std::string>& name, Names usual) {
      return name ? Names{*name} : std::move(usual);
    };
    texts_ = {names(given.text, {"anchor", "sentence1", "text"}),
              names(given.text_pair, {"positive", "sentence2", "text_pair"})};
    number_ = names(given.one_label(), {"score", "label"});
    const std::string negative = given.negative.value_or("negative");
    negatives_ = {negative};
    for (int i = 1; i <= kMostNegatives; ++i) negatives_.push_back(negative + "_" + std::to_string(i));
    columns_ = 1;
  }

  Names columns() const override {
    Names all = number_;
    for (const Names& names : texts_) all.insert(all.end(), names.begin(), names.end());
    all.insert(all.end(), negatives_.begin(), negatives_.end());
    return all;
  }

  Names columns_of(const PairRecord& record) const override {
    Names all;
    for (size_t i = 0; i < static_cast<size_t>(streams_); ++i)
      if (const auto name = name_in(record, names_of(i))) all.push_back(*name);
    const auto number = has_more_ ? name_in(record, number_) : std::nullopt;
    if (number) all.push_back(*number);
    return all;
  }

  /// Collects the columns that any record has: all must have them.
  void look_at(const std::vector<Record>& records) override {
    std::vector<bool> has(negatives_.size());
    for (const Record& record : records) {
      if (!record.problem.empty()) continue;
      for (size_t i = 0; i < has.size(); ++i)
        if (!has[i]) has[i] = name_in(record.value, {negatives_[i]}).has_value();
      has_more_ = has_more_ || name_in(record.value, number_).has_value();
    }
    Names found;
    for (size_t i = 0; i < has.size(); ++i)
      if (has[i]) found.push_back(negatives_[i]);
    streams_ = static_cast<int64_t>(kPartners + found.size());
    if (!found.empty()) negatives_ = std::move(found);
  }

  void follow(const data::SampleLayout& train) override {
    const auto texts = std::ranges::count_if(train.fields, &data::Field::ragged);
    streams_ = std::max(texts, static_cast<std::ptrdiff_t>(kPartners));
    has_more_ = train.target() != nullptr;
  }

  void read_input(const PairRecord& record, Draft& draft) const override { add_text(record, 0, draft); }

  void read(PairRecord& record, std::vector<Draft>& drafts) const override {
    Draft& draft = drafts.back();
    for (size_t i = 0; i < static_cast<size_t>(streams_); ++i) add_text(record, i, draft);
    if (!has_more_) return;
    const auto number = name_in(record, number_);
    if (!number) throw Error(ExitCode::data, {.what = "no number in '" + number_.front() + "', which others have"});
    draft.numbers = {static_cast<float>(number_in(record[*number]))};
  }

  std::vector<EncodedSample> encoded(Draft& draft, int64_t most) const override {
    EncodedSample all;
    for (const LearnedText& text : draft.texts) {
      std::vector<int64_t> tokens = tokenizer().encode(text.text, draft.place);
      if (tokens.empty()) throw Error(ExitCode::data, {.what = "a text is empty"});
      EncodedSample one = encoded_sample(framed(tokenizer(), std::move(tokens), {}, most));
      all.streams.push_back(std::move(one.streams[0]));
      all.full_size = std::max(all.full_size, one.full_size);
      all.is_cut = all.is_cut || one.is_cut;
    }
    return {std::move(all)};
  }

  void check(const MadeSamples& made, int64_t, const std::string& path) const override {
    if (!made.has_more || made.numbers.size() == 0) return;
    const auto [least, most] = std::ranges::minmax(made.numbers.values());
    const float beyond = std::max(-least, most);
    if (beyond > 1)
      log::warning(fmt::format("{}: its numbers reach from {} to {}, and no cosine is beyond 1: divide them by {}",
                               path, least, most, beyond));
  }

  data::SampleLayout layout(const MadeSamples& made) const override {
    data::SampleLayout layout;
    for (size_t i = 0; i < made.streams.size(); ++i)
      layout.fields.push_back({.name = i == 0          ? kTokens
                                       : i < kPartners ? kPairTokens
                                                       : data::negative_tokens(static_cast<int64_t>(i - kPartners)),
                               .sizes = {made.longest},
                               .ragged = true,
                               .pass = static_cast<int>(i)});
    if (made.has_more)
      layout.fields.push_back({.name = kTarget, .type = at::kFloat, .fill = std::nan(""), .target = true});
    return layout;
  }

  SampleWords words(const MadeSamples& made) const override {
    const auto negatives = made.streams.size() - kPartners;
    return {
        .sample = negatives == 1 ? "triple" : "pair",
        .behind_sample = negatives > 1 ? " with " + counted(static_cast<int64_t>(negatives), "negative") + " each" : "",
        .tail = made.has_more ? ", a number each" : "",
        .is_cut = "texts of ",
        .counted_streams = std::ssize(made.streams)};
  }

 private:
  Names names_of(size_t text) const {
    if (text < kPartners) return texts_[text];
    const size_t negative = text - kPartners;  // validation data may have fewer than training data
    return {negative < negatives_.size()
                ? negatives_[negative]
                : options().columns.negative.value_or("negative") + "_" + std::to_string(negative + 1)};
  }

  void add_text(const PairRecord& record, size_t text, Draft& draft) const {
    const Names names = names_of(text);
    const auto name = name_in(record, names);
    if (!name || !record[*name].is_string())
      throw Error(ExitCode::data,
                  {.what = "no text in '" + names.front() + "'" + (text < kPartners ? "" : ", which others have"),
                   .where = {},
                   .hint = "a model that gives vectors (model.config.head: embedder) reads pairs: anchor and positive, "
                           "sentence1 and sentence2, or data.text.columns: {text: NAME, text_pair: NAME}; for classes, "
                           "model.config.head: classifier"});
    draft.texts.push_back({.text = record[*name].get<std::string>()});
  }

  std::array<Names, kPartners> texts_;
  Names number_, negatives_;
};

const RegisteredBuilder<TextPairs> registered_pairs{Target::pairs};

}  // namespace
}  // namespace gputrain::records
