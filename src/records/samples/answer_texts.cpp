// Samples of answers to prompts: pairs of a better and a worse one, or answers that are good or bad.
#include <algorithm>
#include <optional>
#include <utility>

#include "../tokens/examples.hpp"
#include "answers.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/answer_fields.hpp"
#include "gputrain/data/batch.hpp"
#include "text_samples.hpp"

namespace gputrain::records {
namespace {

/// Samples with the fields tokens, target, rejected_tokens and rejected_target for Target::preference; for
/// Target::rating: tokens, target, unrelated_tokens and unrelated_target (the prompt with the answer of the sample
/// before it), and is_good. All but is_good are ragged. Targets are the next token within the answer, else
/// kIgnoreIndex. Packed, several such samples share a row, both texts of each, in the fields tokens, target, positions,
/// text_of_token, is_sample and is_good.
class AnswerTexts final : public SampleBuilder {
 public:
  explicit AnswerTexts(const data::DatasetRequest& request) : SampleBuilder(request, 2) {
    for (const auto& [is_set, key] : {std::pair(options().loss_on.has_value(), "data.text.loss_on"),
                                      std::pair(options().roles_to_train.has_value(), "data.text.roles_to_train"),
                                      std::pair(options().train_on_eos != "turn", "data.text.train_on_eos")})
      if (is_set)
        throw Error(ExitCode::usage,
                    {.what = "what counts of an answer is all of it", .where = key, .hint = "leave it out"});
    columns_ = 1;
  }

  std::vector<std::string> columns() const override { return columns_of_answers(options().columns); }

  /// Returns the columns of a pair of answers, or of a completion with a label, and those of the prompt.
  std::vector<std::string> columns_of(const nlohmann::ordered_json& record) const override {
    const data::ColumnNames& names = options().columns;
    const std::string completion = names.completion.value_or("completion"), label = names.one_label().value_or("label"),
                      chosen = names.chosen.value_or("chosen"), rejected = names.rejected.value_or("rejected");
    const auto found = record.find(completion);
    const bool has_label = is_rated() && found != record.end() && !found->is_null();
    std::vector<std::string> read = columns_of_prompt(record, names);
    read.push_back(has_label ? completion : chosen);
    read.push_back(has_label ? label : rejected);
    return read;
  }

  void read(nlohmann::ordered_json& record, std::vector<Draft>& drafts) const override {
    Draft& first = drafts.back();
    first.variables = nlohmann::ordered_json::object();
    for (const char* name : {"tools", "documents", "chat_template_kwargs"})
      if (record.contains(name)) first.variables[name] = record[name];
    if (!is_rated()) {
      Preference both = preference_in(record, options().columns);
      first.dialogues = {std::move(both.chosen), std::move(both.rejected)};
      first.numbers = {1};
      return;
    }
    std::vector<Rating> ratings = ratings_in(record, options().columns);
    drafts.resize(ratings.size(), drafts.front());
    for (size_t i = 0; i < ratings.size(); ++i) {
      drafts[i].dialogues = {std::move(ratings[i].dialogue), {}};
      drafts[i].numbers = {ratings[i].is_good ? 1.0F : 0.0F};
    }
  }

  /// Gives each usable sample the answer of the one before it (the first: of the last) if both are texts, or both are
  /// messages; else its own.
  void settle(std::vector<Draft>& drafts, const std::vector<std::string>*) override {
    if (!is_rated()) return;
    const auto is_usable = [](const Draft& draft) { return draft.problem.empty(); };
    const auto last = std::ranges::find_if(drafts.rbegin(), drafts.rend(), is_usable);
    if (last == drafts.rend()) return;
    const nlohmann::ordered_json* before = &last->dialogues[0].answer;
    for (Draft& draft : drafts) {
      if (!is_usable(draft)) continue;
      const Dialogue& own = draft.dialogues[0];
      draft.dialogues[1] = {own.prompt, before->is_array() == own.answer.is_array() ? *before : own.answer};
      before = &own.answer;
    }
  }

  void start() override { texts_.emplace(options(), tokenizer_folder()); }
  void check_texts() const override {
    if (texts_) texts_->check_marks(tokenizer());
  }

  void make_texts(Draft& draft) const override {
    for (const Dialogue& dialogue : std::exchange(draft.dialogues, {}))
      draft.texts.push_back(texts_->answered(dialogue, draft.variables));
    draft.variables = nullptr;
  }

  std::vector<EncodedSample> encoded(Draft& draft, int64_t most) const override {
    EncodedSample sample;
    for (const LearnedText& text : draft.texts) {
      std::vector<uint32_t> tokens = example_of(text, tokenizer(), draft.place).stored();
      sample.full_size = std::max(sample.full_size, std::ssize(tokens));
      if (std::ssize(tokens) > most) tokens.resize(static_cast<size_t>(most));
      if (learned_count(tokens) == 0)
        throw Error(ExitCode::data, {.what = "nothing of an answer lies within the first " + counted(most, "token") +
                                             " (data.text.max_length)"});
      sample.streams.push_back(std::move(tokens));
    }
    sample.is_cut = sample.full_size > most;
    return {std::move(sample)};
  }

  int64_t least_length() const override { return 2; }
  int64_t most_of_text(int64_t most) const override { return packs() ? most / 2 : most; }

  data::SampleLayout layout(const MadeSamples& made) const override {
    data::SampleLayout layout;
    for (const char* name : {kTokens, kTarget, is_rated() ? data::kUnrelatedTokens : kRejectedTokens,
                             is_rated() ? data::kUnrelatedTarget : kRejectedTarget})
      layout.fields.push_back({.name = name,
                               .sizes = {made.longest},
                               .fill = layout.fields.size() % 2 == 1 ? static_cast<double>(kIgnoreIndex) : 0,
                               .ragged = true});
    if (is_rated()) layout.fields.push_back({.name = data::kIsGood, .type = at::kFloat});
    return layout;
  }

  data::SampleLayout packed_layout(int64_t length, int64_t samples) const override {
    constexpr auto kIgnored = static_cast<double>(kIgnoreIndex);
    data::SampleLayout layout;
    layout.fields = {{.name = kTokens, .sizes = {length}},
                     {.name = kTarget, .sizes = {length}, .fill = kIgnored},
                     {.name = kPositions, .sizes = {length}},
                     {.name = data::kTextOfToken, .sizes = {length}, .fill = -1},
                     // Target, because the samples of a row are counted.
                     {.name = data::kIsSample, .sizes = {samples}, .fill = kIgnored, .target = true}};
    if (is_rated()) layout.fields.push_back({.name = data::kIsGood, .type = at::kFloat, .sizes = {samples}});
    return layout;
  }

  bool learns_tokens() const override { return true; }
  bool packs() const override { return options().packing; }

  /// Hashes tokens and the ends of texts and rows: the numbers that a model gave the answers hold for this data alone.
  uint64_t content_hash(const MadeSamples& made, const PackedRows& rows) const override {
    uint64_t hash = 1;
    const auto add = [&hash](const auto& values) {
      const auto bytes = std::as_bytes(std::span(values));
      hash = mix(hash, stable_hash({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    };
    for (const MadeSamples::Stream& stream : made.streams) {
      add(stream.values.values());
      add(stream.ends.values());
    }
    add(made.numbers.values());
    add(rows.samples);
    add(rows.ends);
    return std::max<uint64_t>(hash, 1);
  }

  SampleWords words(const MadeSamples&) const override {
    return {.sample = is_rated() ? "rated answer" : "pair",
            .behind_sample = is_rated() ? "" : " of answers",
            .is_cut = "answers of ",
            .counted_streams = is_rated() ? 1 : 2};
  }

 private:
  bool is_rated() const { return target() == Target::rating; }

  std::optional<RecordTexts> texts_;
};

const RegisteredBuilder<AnswerTexts> registered_answers{Target::preference, Target::rating};

}  // namespace
}  // namespace gputrain::records
