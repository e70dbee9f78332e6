// Texts as words, each with a tag: names of people and places, parts of speech.
#include <algorithm>
#include <string_view>
#include <utility>

#include "../labels.hpp"
#include "../tokens/encoded_texts.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/batch.hpp"
#include "text_samples.hpp"

namespace gputrain::records {
namespace {

constexpr std::string_view kNoTag = "-100";  // tag of a word that is not learned, as in prepared datasets

/// Samples with the fields tokens and target, ragged. The first token of a word has the class of its tag; the others
/// are not learned, as in transformers' examples.
class TaggedTexts final : public SampleBuilder {
 public:
  explicit TaggedTexts(const data::DatasetRequest& request)
      : SampleBuilder(request, 2),
        words_(options().columns.words.value_or("tokens")),
        tags_(options().columns.tags.value_or("tags")) {}

  std::vector<std::string> columns() const override { return {words_, tags_}; }

  void read_input(const nlohmann::ordered_json& record, Draft& draft) const override {
    for (std::string& word : texts_of_list(record, words_)) draft.texts.push_back({.text = std::move(word)});
  }

  void read(nlohmann::ordered_json& record, std::vector<Draft>& drafts) const override {
    read_input(record, drafts.back());
    drafts.back().names = texts_of_list(record, tags_);
  }

  void settle(std::vector<Draft>& drafts, const std::vector<std::string>* known) override {
    std::vector<std::string> tags = known != nullptr ? *known : std::vector<std::string>();
    if (known == nullptr)
      for (const Draft& draft : drafts) tags.insert(tags.end(), draft.names.begin(), draft.names.end());
    std::erase(tags, kNoTag);
    names_ = ClassNames(std::move(tags));
    classes_ = names_.names();
  }

  std::vector<std::string> texts_for_tokenizer(const Draft& draft) const override {
    std::string text;
    for (const LearnedText& word : draft.texts) text += " " + word.text;
    return {text.empty() ? " " : text};
  }

  std::vector<EncodedSample> encoded(Draft& draft, int64_t most) const override {
    if (draft.texts.empty()) throw Error(ExitCode::data, {.what = "there is no word"});
    if (draft.texts.size() != draft.names.size())
      throw Error(ExitCode::data, {.what = counted(std::ssize(draft.texts), "word") + " with " +
                                           counted(std::ssize(draft.names), "tag")});
    EncodedWords words;
    for (const LearnedText& word : draft.texts) words.add(word.text, tokenizer(), draft.place);
    if (words.tokens.empty()) throw Error(ExitCode::data, {.what = "no word has a token"});
    std::vector<uint32_t> targets(words.tokens.size(), static_cast<uint32_t>(kIgnoreIndex));
    for (size_t i = 0; i < draft.names.size(); ++i) {
      const int64_t number = draft.names[i] == kNoTag ? kIgnoreIndex : names_.number_of(draft.names[i]);
      if (words.begins[i] >= 0) targets[static_cast<size_t>(words.begins[i])] = static_cast<uint32_t>(number);
    }
    EncodedSample sample = encoded_sample(framed(tokenizer(), std::move(words.tokens), {}, most));
    const tokenizers::Frame frame = tokenizer().frame(false);
    std::vector<uint32_t>& all =
        sample.streams.emplace_back(sample.streams[0].size(), static_cast<uint32_t>(kIgnoreIndex));
    for (size_t i = 0; i < targets.size() && i + frame.before.size() + frame.behind.size() < all.size(); ++i)
      all[frame.before.size() + i] = targets[i];
    return {std::move(sample)};
  }

  void check(const MadeSamples& made, int64_t, const std::string& path) const override {
    const auto is_left_out = [](uint32_t target) { return target == static_cast<uint32_t>(kIgnoreIndex); };
    if (std::ranges::all_of(made.streams[1].values.values(), is_left_out))
      throw Error(ExitCode::data, {.what = "no word has a tag that is learned", .where = path});
  }

  data::SampleLayout layout(const MadeSamples& made) const override {
    data::SampleLayout layout = data::SampleLayout::tokens(made.longest, std::ssize(made.classes));
    for (data::Field& field : layout.fields) field.ragged = true;
    return layout;
  }

  SampleWords words(const MadeSamples& made) const override {
    return {.tail = ", " + counted(std::ssize(made.classes), "class") + " of words",
            .cut_sample = "text",
            .loss_of_cut = ", and their last words are not learned"};
  }

 private:
  std::string words_, tags_;
  ClassNames names_{{}};
};

const RegisteredBuilder<TaggedTexts> registered_tagged{Target::tags};

}  // namespace
}  // namespace gputrain::records
