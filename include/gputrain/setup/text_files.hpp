// Files beside a language model's weights with which other programs let it write as it was trained.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/chat/model_templates.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/train/sampler.hpp"

namespace gputrain::app {

/// Name of the file in a model's folder.
constexpr const char* kChatTemplate = "chat_template.jinja";

struct TextFiles {
  std::filesystem::path folder = {}, source = {};  // see copy_tokenizer_files(); empty: no files
  std::optional<chat::ChatTemplate> chat_template = {};
  bool is_other_template = false;        // true: not that of the folder
  std::vector<int64_t> end_tokens = {};  // ascending; empty also if the model continues no texts
};

/// Calls choose_chat_template(); none: there is no template, or it is broken.
std::optional<chat::ChatTemplate> find_chat_template(const std::optional<std::string>& file_or_name,
                                                     const std::filesystem::path& folder);

/// Returns those of a job with this training data.
TextFiles text_files_of(const Job& job, const data::Dataset& learned);

/// Returns how a job writes conversations as texts, by a template that must live as long.
train::ConversationForm conversation_form(const JobSpec& spec, const std::optional<chat::ChatTemplate>& chat_template);

/// Copies the tokenizer's files, writes the template as chat_template.jinja and the tokens that begin, end and pad a
/// text into generation_config.json. Throws Error(environment) if the disk fails.
void write_text_files(const TextFiles& files, const std::filesystem::path& folder);

/// Adds to a config.json the special tokens that it lacks and that the folder's generation_config.json names.
void add_special_tokens(nlohmann::json& config, const std::filesystem::path& folder);

}  // namespace gputrain::app
