#include "gputrain/chat/model_templates.hpp"

#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"

namespace gputrain::chat {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string read_text(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.is_open() || stream.bad())
    throw Error(ExitCode::data, {.what = "this file cannot be read", .where = path.string()});
  return text;
}

/// Reads an object; empty if there is no such file.
ordered_json read_object(const fs::path& path) {
  if (!fs::exists(path)) return ordered_json::object();
  try {
    const std::string text = read_text(path);
    if (is_nested_too_deep(text))
      throw Error(ExitCode::data, {.what = "lists or objects within each other are too deep", .where = path.string()});
    ordered_json document = ordered_json::parse(text);
    if (document.is_object()) return document;
  } catch (const ordered_json::exception& error) {
    throw Error(ExitCode::data, {.what = "not JSON: " + reason_in(error),
                                 .where = path.string(),
                                 .hint = "download the file again; a Git LFS pointer is not the file"});
  }
  throw Error(ExitCode::data, {.what = "expected a JSON object", .where = path.string()});
}

/// Reads how a token is spelled: a string, or an object with this string and how it is matched.
std::optional<std::string> spelling(const ordered_json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::nullopt;
  const ordered_json& token = found->is_object() && found->contains("content") ? found->at("content") : *found;
  return token.is_string() ? std::optional(token.get<std::string>()) : std::nullopt;
}

/// Returns the template in a file of JSON, if there is one: the only one, or the one with this name.
std::optional<std::string> configured(const fs::path& file, const std::string& name) {
  const ordered_json config = read_object(file);
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return name == "default" ? std::optional(found->get<std::string>()) : std::nullopt;
  if (found->is_array()) {
    for (const ordered_json& entry : *found)
      if (entry.is_object() && spelling(entry, "name") == name && spelling(entry, "template"))
        return spelling(entry, "template");
    if (name != "default") return std::nullopt;
  }
  throw Error(ExitCode::data, {.what = "chat_template is neither a string nor a list with one called \"default\"",
                               .where = file.string(),
                               .hint = "write the template that you want into chat_template.jinja beside it"});
}

/// Returns a message without keys that are null, except the content beside calls; the assistant's thoughts stand under
/// both names that templates use.
ordered_json prepared(const ordered_json& message) {
  if (!message.is_object()) return message;
  ordered_json result = ordered_json::object();
  const ordered_json* thought = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"})
    if (thought == nullptr && message.contains(name) && !message.at(name).is_null()) thought = &message.at(name);
  if (thought != nullptr) result["thinking"] = *thought;
  for (const auto& [key, value] : message.items())
    if (!value.is_null() || (key == "content" && message.contains("tool_calls"))) result[key] = value;
  if (thought != nullptr) result["reasoning_content"] = *thought;
  return result;
}

}  // namespace

ChatTemplate::ChatTemplate(Template source, const ordered_json& special_tokens)
    : template_(std::move(source)), special_tokens_(std::make_shared<const ordered_json>(special_tokens)) {}

Rendered ChatTemplate::render(const ordered_json& messages, bool add_generation_prompt,
                              const ordered_json& variables) const {
  ordered_json all = *special_tokens_;
  all["tools"] = nullptr;
  all["documents"] = nullptr;
  all.update(variables);
  all["messages"] = ordered_json::array();
  for (const ordered_json& message : messages) all["messages"].push_back(prepared(message));
  all["add_generation_prompt"] = add_generation_prompt;
  return template_.render(all);
}

ordered_json read_special_tokens(const fs::path& folder) {
  ordered_json tokens = ordered_json::object();
  const ordered_json config = read_object(folder / "tokenizer_config.json");
  const ordered_json map = read_object(folder / "special_tokens_map.json");
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto token = config.contains(name) ? spelling(config, name) : spelling(map, name);
    if (token) tokens[name] = *token;
  }
  return tokens;
}

std::optional<ChatTemplate> read_tool_template(const fs::path& folder) {
  const fs::path file = folder / "additional_chat_templates/tool_use.jinja", config = folder / "tokenizer_config.json";
  const ordered_json tokens = read_special_tokens(folder);
  if (fs::exists(file)) return ChatTemplate(Template::parse(read_text(file), file.string()), tokens);
  if (fs::exists(folder / "chat_template.jinja")) return std::nullopt;
  const auto source = configured(config, "tool_use");
  if (!source) return std::nullopt;
  return ChatTemplate(Template::parse(*source, config.string() + ": chat_template tool_use"), tokens);
}

ChatTemplate read_chat_template(const fs::path& folder) {
  const fs::path file = folder / "chat_template.jinja";
  const ordered_json tokens = read_special_tokens(folder);
  if (fs::exists(file)) return {Template::parse(read_text(file), file.string()), tokens};
  for (const char* name : {"tokenizer_config.json", "chat_template.json"})
    if (const auto source = configured(folder / name, "default"))
      return {Template::parse(*source, (folder / name).string() + ": chat_template"), tokens};
  std::string names;
  for (const std::string& name : built_in_chat_templates()) names += (names.empty() ? "" : ", ") + name;
  throw Error(ExitCode::data, {.what = "this model has no chat template",
                               .where = folder.string(),
                               .hint = "chat_template.jinja is looked for, then chat_template in "
                                       "tokenizer_config.json and chat_template.json; built in are: " +
                                       names});
}

ChatTemplate choose_chat_template(const std::optional<std::string>& file_or_name, const fs::path& folder) {
  if (!file_or_name) {
    if (!folder.empty()) return read_chat_template(folder);
    throw Error(ExitCode::data, {.what = "the tokenizer brings no chat template"});
  }
  const ordered_json tokens = folder.empty() ? ordered_json::object() : read_special_tokens(folder);
  if (!fs::is_regular_file(*file_or_name)) return built_in_chat_template(*file_or_name, tokens);
  return {Template::parse(read_text(*file_or_name), *file_or_name), tokens};
}

}  // namespace gputrain::chat
