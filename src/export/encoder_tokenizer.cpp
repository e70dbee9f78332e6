#include "encoder_tokenizer.hpp"

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/setup/weights.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct TemplatePart {
  const char* name;  // A and B are the texts
  int type;
};

Json template_of(const std::vector<TemplatePart>& parts) {
  Json list = Json::array();
  for (const auto& [name, type] : parts) {
    const bool is_text = std::string(name).size() == 1;
    list.push_back({{is_text ? "Sequence" : "SpecialToken", {{"id", name}, {"type_id", type}}}});
  }
  return list;
}

/// Describes tokenizers/words.cpp in the format of the package tokenizers.
Json words_as_json(const tokenizers::Tokenizer& tokenizer) {
  const std::vector<std::string> texts = tokenizer.token_texts();
  Json vocabulary = Json::object(), added = Json::array(), special = Json::object();
  for (size_t i = 0; i < texts.size(); ++i) {
    vocabulary[texts[i]] = i;
    const bool is_special = tokenizer.is_special(static_cast<int64_t>(i)) || texts[i] == "[UNK]";
    if (!is_special) continue;
    added.push_back({{"id", i},
                     {"content", texts[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
    special[texts[i]] = {{"id", texts[i]}, {"ids", {i}}, {"tokens", {texts[i]}}};
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", {{"type", "Lowercase"}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", template_of({{"[CLS]", 0}, {"A", 0}, {"[SEP]", 0}})},
            {"pair", template_of({{"[CLS]", 0}, {"A", 0}, {"[SEP]", 0}, {"B", 1}, {"[SEP]", 1}})},
            {"special_tokens", special}}},
          {"decoder", nullptr},
          {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "[UNK]"}}}};
}

}  // namespace

void write_encoder_tokenizer(const trained::Model& model, const fs::path& folder) {
  if (!model.tokenizer_folder.empty())
    return copy_tokenizer_files(model.tokenizer_folder, folder, model.tokenizer->source());
  if (model.tokenizer_kind != "words")
    throw Error(ExitCode::usage, {.what = "transformers has no tokenizer '" + model.tokenizer_kind + "'",
                                  .where = "--format",
                                  .hint = "train with the tokenizer `words`, or with a published one"});
  write_file_atomically(folder / "tokenizer.json", words_as_json(*model.tokenizer).dump() + "\n",
                        ExitCode::environment);
  const Json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                    {"model_max_length", model.longest_text},
                    {"pad_token", "[PAD]"},
                    {"unk_token", "[UNK]"},
                    {"cls_token", "[CLS]"},
                    {"sep_token", "[SEP]"},
                    {"mask_token", "[MASK]"}};
  write_file_atomically(folder / "tokenizer_config.json", config.dump(2) + "\n", ExitCode::environment);
}

}  // namespace gputrain::app
