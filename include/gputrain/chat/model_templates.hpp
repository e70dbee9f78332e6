// The chat template of a model: the one in its folder, or one that is built in.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/chat/template.hpp"

namespace gputrain::chat {

/// A template and the special tokens of its model. Immutable, so thread-safe.
class ChatTemplate {
 public:
  /// `special_tokens` is an object: "bos_token", "eos_token" and so on to their texts.
  ChatTemplate(Template source, const nlohmann::ordered_json& special_tokens);

  /// Renders as transformers' apply_chat_template(): `variables` is an object with "tools", "documents" and whatever
  /// else the template reads; it wins over special tokens of the same name. Messages are taken as they are, without
  /// keys that are null. Throws Error(data).
  Rendered render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                  const nlohmann::ordered_json& variables) const;

  const Template& source() const noexcept { return template_; }

 private:
  Template template_;
  std::shared_ptr<const nlohmann::ordered_json> special_tokens_;
};

/// Reads chat_template.jinja, or else `chat_template` of tokenizer_config.json (of several, the one called "default")
/// or of chat_template.json, and the special tokens of tokenizer_config.json or special_tokens_map.json. Throws
/// Error(data).
ChatTemplate read_chat_template(const std::filesystem::path& folder);

/// Returns the template called "tool_use" of a model that has one for conversations with tools. Throws Error(data).
std::optional<ChatTemplate> read_tool_template(const std::filesystem::path& folder);

/// Returns "alpaca", "chatml", "llama3", "plain".
std::vector<std::string> built_in_chat_templates();
/// Returns a built-in template; special tokens as above. Throws Error(usage), which lists the names, for another name.
ChatTemplate built_in_chat_template(const std::string& name, const nlohmann::ordered_json& special_tokens);

/// Returns the template of a file or a built-in one by its name, or else that of a model's folder, which may be empty.
/// The special tokens are the folder's. Throws Error(usage) for an unknown name, Error(data) for a template that is
/// broken or that the folder lacks.
ChatTemplate choose_chat_template(const std::optional<std::string>& file_or_name, const std::filesystem::path& folder);

/// Returns the special tokens of a model's folder; an empty object if it has none. Throws Error(data).
nlohmann::ordered_json read_special_tokens(const std::filesystem::path& folder);

}  // namespace gputrain::chat
