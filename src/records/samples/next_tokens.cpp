// Texts and conversations whose next tokens are learned: one sample each, or packed into rows.
#include <algorithm>
#include <optional>
#include <utility>

#include "../tokens/examples.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/batch.hpp"
#include "text_samples.hpp"

namespace gputrain::records {
namespace {

bool has_value(const nlohmann::ordered_json& record, const std::string& column) {
  const auto found = record.find(column);
  return found != record.end() && !found->is_null();
}

/// Samples with the fields tokens and target; packed, positions too, and every row has as many tokens. Otherwise
/// samples differ in length.
class NextTokens final : public SampleBuilder {
 public:
  explicit NextTokens(const data::DatasetRequest& request) : SampleBuilder(request, 1) {}

  std::vector<std::string> columns() const override { return columns_of_texts(options()); }

  /// Chooses like RecordTexts::of(): the columns of one form of records, and those that go with conversations.
  std::vector<std::string> columns_of(const nlohmann::ordered_json& record) const override {
    const data::ColumnNames& names = options().columns;
    std::vector<std::vector<std::string>> forms{
        {names.messages.value_or("messages"), "system"},
        {"conversations", "system"},
        {names.prompt.value_or("prompt"), names.completion.value_or("completion")},
        {names.text.value_or("text")},
        {"instruction", "input", "context", "output", "response", "history", "system"}};
    const auto form = std::ranges::find_if(forms, [&](const auto& columns) {
      const bool is_list = columns.back() == "system" && columns.size() == 2;  // true for a list; an empty one is none
      return has_value(record, columns[0]) && !(is_list && (record[columns[0]].empty() || record[columns[0]] == ""));
    });
    if (form == forms.end()) return columns();
    const bool is_prompt = (*form)[0] == forms[2][0];
    if ((*form)[0] == forms[3][0] || (is_prompt && !is_list_of_messages(record[forms[2][0]]))) return *form;
    if (is_prompt) form->emplace_back("system");
    const bool is_list = (*form)[0] != "instruction";
    if (!reads_system(record, is_list ? &record[(*form)[0]] : nullptr)) std::erase(*form, "system");
    std::vector<std::string> read = columns();
    for (const auto& other : forms)
      std::erase_if(read, [&](const std::string& name) {
        return std::ranges::find(other, name) != other.end() && std::ranges::find(*form, name) == form->end();
      });
    if (!is_list && has_value(record, "output")) std::erase(read, "response");
    return read;
  }

  void start() override { texts_.emplace(options(), tokenizer_folder()); }
  void check_texts() const override {
    if (texts_) texts_->check_marks(tokenizer());
  }

  void read(nlohmann::ordered_json& record, std::vector<Draft>& drafts) const override {
    drafts.back().variables = std::move(record);
  }

  void make_texts(Draft& draft) const override {
    const nlohmann::ordered_json record = std::exchange(draft.variables, nullptr);
    draft.texts.push_back(texts_->of(record));
  }

  std::vector<EncodedSample> encoded(Draft& draft, int64_t most) const override {
    const LearnedText& text = draft.texts.at(0);
    std::vector<uint32_t> tokens = example_of(text, tokenizer(), draft.place).stored();
    if (tokens.size() < 2) throw Error(ExitCode::data, {.what = "less than two tokens: nothing to predict"});
    const auto full_size = std::ssize(tokens);
    if (full_size <= most || !text.is_document) {
      if (full_size > most) tokens.resize(static_cast<size_t>(most));
      return {{.streams = {std::move(tokens)}, .full_size = full_size, .is_cut = full_size > most}};
    }
    std::vector<EncodedSample> pieces;
    for (int64_t begin = 0; begin + 1 < full_size; begin += most)
      pieces.push_back({.streams = {{tokens.begin() + begin, tokens.begin() + std::min(begin + most, full_size)}}});
    return pieces;
  }

  int64_t least_length() const override { return 2; }

  void check(const MadeSamples& made, int64_t longest, const std::string& path) const override {
    int64_t nothing = 0;
    for (int64_t i = 0; i < made.size(); ++i)
      if (!made.problems.contains(i) && made.streams[0].learned_count(i) == 0) ++nothing;
    const std::string why = "no part that counts lies within the first " + counted(longest, "token");
    if (nothing == made.size() - std::ssize(made.problems))
      throw Error(ExitCode::data, {.what = "nothing is learned from any text: " + why,
                                   .where = path,
                                   .hint = "data.text.max_length, data.text.loss_on, or, of conversations, "
                                           "data.text.roles_to_train: which roles and weights do the messages have?"});
    if (nothing > 0) log::warning(path + ": nothing is learned from " + counted(nothing, "text") + ": " + why);
  }

  data::SampleLayout layout(const MadeSamples& made) const override {
    data::SampleLayout layout = data::SampleLayout::tokens(made.longest, tokenizer().vocabulary_size());
    for (data::Field& field : layout.fields) field.ragged = true;
    return layout;
  }

  data::SampleLayout packed_layout(int64_t length, int64_t) const override {
    data::SampleLayout layout = data::SampleLayout::tokens(length, tokenizer().vocabulary_size());
    layout.fields.push_back({.name = kPositions, .sizes = {length}});
    return layout;
  }

  bool learns_tokens() const override { return true; }
  bool packs() const override { return options().packing; }
  bool divides_in_order() const override { return true; }
  SampleWords words(const MadeSamples&) const override { return {.tells_learned = true}; }

 private:
  std::optional<RecordTexts> texts_;
};

const RegisteredBuilder<NextTokens> registered_next_tokens{Target::next_token};

}  // namespace
}  // namespace gputrain::records
