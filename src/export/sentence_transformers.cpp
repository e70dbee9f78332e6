#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/export/export.hpp"
#include "gputrain/models/sentence_modules.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void write_json(const fs::path& file, const Json& content) {
  fs::create_directories(file.parent_path());
  write_file_atomically(file, content.dump(2) + "\n", ExitCode::environment);
}

/// Returns keys that every version of the package reads.
Json pooling_config(const models::SentenceModules& modules, int64_t channels) {
  return {{"word_embedding_dimension", channels},
          {"pooling_mode_cls_token", modules.pooling == "first"},
          {"pooling_mode_mean_tokens", modules.pooling == "mean"},
          {"pooling_mode_max_tokens", false},
          {"pooling_mode_mean_sqrt_len_tokens", false},
          {"pooling_mode_weightedmean_tokens", false},
          {"pooling_mode_lasttoken", modules.pooling == "last"},
          {"include_prompt", true}};
}

}  // namespace

void export_sentence_transformers(trained::Model& model, const fs::path& folder, StoredType type) {
  const auto modules = models::sentence_modules_of(*model.built.model);
  GPUTRAIN_ASSERT(modules, "a model that gives vectors");
  export_transformers(model, folder, type);
  Json list = Json::array();
  const auto add = [&](const std::string& path, const std::string& kind) {
    const size_t number = list.size();
    list.push_back({{"idx", number},
                    {"name", std::to_string(number)},
                    {"path", path},
                    {"type", "sentence_transformers.models." + kind}});
  };
  add("", "Transformer");
  add("1_Pooling", "Pooling");
  write_json(folder / "1_Pooling" / "config.json", pooling_config(*modules, modules->channels));
  if (modules->normalizes) {
    add("2_Normalize", "Normalize");
    write_json(folder / "2_Normalize" / "config.json", Json::object());
  }
  write_json(folder / "sentence_bert_config.json", {{"max_seq_length", model.longest_text}, {"do_lower_case", false}});
  write_json(folder / "config_sentence_transformers.json",
             {{"prompts", Json::object()}, {"default_prompt_name", nullptr}, {"similarity_fn_name", "cosine"}});
  write_json(folder / "modules.json", list);
}

}  // namespace gputrain::app
