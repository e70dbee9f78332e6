#include "gputrain/setup/text_files.hpp"

#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/listing.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/generation/end_tokens.hpp"
#include "gputrain/setup/weights.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char *kGeneration = "generation_config.json", *kTokenizer = "tokenizer_config.json";

/// Returns null if there is no such file, or it is no object.
ordered_json read_object(const fs::path& path) {
  ordered_json content = parse_json_file<ordered_json>(path);
  return content.is_object() ? content : ordered_json();
}

void write_json(const fs::path& path, const ordered_json& content) {
  write_file_atomically(path, content.dump(2) + "\n", ExitCode::environment);
}

/// Copies templates for tools or documents, beside the one that is the model's.
void copy_more_templates(const fs::path& from, const fs::path& to) {
  constexpr const char* kMore = "additional_chat_templates";
  if (from.empty() || !fs::is_directory(from / kMore)) return;
  fs::create_directories(to / kMore);
  for (const auto& entry : fs::directory_iterator(from / kMore))
    if (entry.path().extension() == ".jinja")
      write_file_atomically(to / kMore / entry.path().filename(), checkpoint::read_text(entry.path()),
                            ExitCode::environment);
}

/// Returns one number, or a list of them.
json number_or_list(const std::vector<int64_t>& numbers) {
  return numbers.size() == 1 ? json(numbers.front()) : json(numbers);
}

/// Writes the template twice: transformers prefers chat_template.jinja, older readers know tokenizer_config.json alone.
void write_template(const TextFiles& files, const fs::path& folder) {
  const std::string& source = files.chat_template->source().source();
  ordered_json config = read_object(folder / kTokenizer);
  const bool has_one = config.is_object() && config.contains("chat_template");
  if (has_one && config["chat_template"].is_array() && !files.is_other_template) return;  // others are in the list
  if (has_one && config["chat_template"] != source) {
    config["chat_template"] = source;
    write_json(folder / kTokenizer, config);
  }
  write_file_atomically(folder / kChatTemplate, source, ExitCode::environment);
}

}  // namespace

std::optional<chat::ChatTemplate> find_chat_template(const std::optional<std::string>& file_or_name,
                                                     const fs::path& folder) {
  try {
    return chat::choose_chat_template(file_or_name, folder);
  } catch (const Error&) {
    return std::nullopt;
  }
}

TextFiles text_files_of(const Job& job, const data::Dataset& learned) {
  TextFiles files;
  const JobSpec& spec = job.spec();
  const fs::path pretrained = spec.model.pretrained_path();
  const auto tokenizer = learned.tokenizer();
  if (tokenizer) {
    files.folder = tokenizer->folder();
    files.source = tokenizer->source();
  } else if (learned.layout().token_count() > 0 && fs::is_directory(pretrained)) {
    files.folder = pretrained;  // the data has token ids
  }
  const bool continues = models::catalog().reads(spec.model.architecture).target == Target::next_token;
  if (!continues || learned.layout().token_count() == 0) return files;
  files.chat_template = find_chat_template(spec.data.text.chat_template, files.folder);
  files.is_other_template = spec.data.text.chat_template.has_value();
  files.end_tokens =
      generation::end_tokens_of(files.folder, tokenizer.get(), files.chat_template ? &*files.chat_template : nullptr);
  return files;
}

train::ConversationForm conversation_form(const JobSpec& spec, const std::optional<chat::ChatTemplate>& chat_template) {
  return {.chat_template = chat_template ? &*chat_template : nullptr, .variables = spec.data.text.chat_template_kwargs};
}

void write_text_files(const TextFiles& files, const fs::path& folder) {
  if (!files.folder.empty()) copy_tokenizer_files(files.folder, folder, files.source);
  if (!files.is_other_template) copy_more_templates(files.folder, folder);
  if (files.chat_template) write_template(files, folder);
  if (files.end_tokens.empty()) return;
  ordered_json config = read_object(folder / kGeneration);
  if (config.is_null()) config = ordered_json::object();
  config["eos_token_id"] = number_or_list(files.end_tokens);
  for (const char* key : {"bos_token_id", "pad_token_id"}) {
    if (files.folder.empty() || !config.value(key, ordered_json()).is_null()) continue;
    const auto numbers = generation::token_numbers(files.folder, key);
    if (!numbers.empty()) config[key] = number_or_list(numbers);
  }
  write_json(folder / kGeneration, config);
}

void add_special_tokens(json& config, const fs::path& folder) {
  const ordered_json read = read_object(folder / kGeneration);
  const ordered_json named = read.is_null() ? ordered_json::object() : read;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (config.value(key, json()).is_null() && named.contains(key)) config[key] = named[key];
  // Classifiers of transformers without it read one text at a time.
  if (!config.contains("pad_token_id") || !config["pad_token_id"].is_null() || !tokenizers::is_published(folder))
    return;
  const std::string padding = tokenizers::padding_token_beside(folder);
  if (padding.empty()) return;
  if (const auto number = tokenizers::read_published(folder)->find(padding)) config["pad_token_id"] = *number;
}

}  // namespace gputrain::app
