#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/chat/model_templates.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::chat {
namespace {

/// Before each: the text of a message, whose content is a string or a list of parts.
constexpr const char* kContent = R"({%- macro text_of(message) -%}
{%- if message.tool_calls or message.role == 'tool' -%}
{{- raise_exception('this chat template has no form for calls of tools') -}}
{%- endif -%}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{{- part.text if part.type == 'text' else raise_exception('this chat template takes text alone') -}}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
)";

constexpr const char* kChatml = R"({%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' -}}
{%- if message.role == 'assistant' -%}
{%- generation -%}{{- text_of(message) + '<|im_end|>' -}}{%- endgeneration -%}
{{- '\n' -}}
{%- else -%}
{{- text_of(message) + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
)";

constexpr const char* kLlama3 = R"({{- bos_token | default('<|begin_of_text|>') -}}
{%- for message in messages -%}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' -}}
{%- if message.role == 'assistant' -%}
{%- generation -%}{{- text_of(message) | trim + '<|eot_id|>' -}}{%- endgeneration -%}
{%- else -%}
{{- text_of(message) | trim + '<|eot_id|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}{%- endif -%}
)";

/// For models that know no special tokens but one for the end.
constexpr const char* kPlain = R"({%- for message in messages -%}
{{- message.role | capitalize + ': ' -}}
{%- if message.role == 'assistant' -%}
{%- generation -%}{{- text_of(message) | trim ~ eos_token ~ '\n' -}}{%- endgeneration -%}
{%- else -%}
{{- text_of(message) | trim + '\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'Assistant: ' -}}{%- endif -%}
)";

/// The prompts of Stanford Alpaca, for models that know no roles. A record's input is apart from its instruction.
constexpr const char* kAlpaca = R"({{- bos_token | default('', true) -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{- text_of(message) + '\n\n' -}}
{%- elif message.role == 'assistant' -%}
{%- generation -%}{{- text_of(message) ~ eos_token -}}{%- endgeneration -%}
{%- if not loop.last -%}{{- '\n\n' -}}{%- endif -%}
{%- else -%}
{%- set parts = message.alpaca if message.alpaca else {'instruction': text_of(message), 'input': ''} -%}
{%- if loop.first -%}
{{- 'Below is an instruction that describes a task' -}}
{{- ', paired with an input that provides further context' if parts.input else '' -}}
{{- '. Write a response that appropriately completes the request.\n\n' -}}
{%- endif -%}
{{- '### Instruction:\n' + parts.instruction + '\n\n' -}}
{{- '### Input:\n' + parts.input + '\n\n' if parts.input else '' -}}
{{- '### Response:\n' -}}
{%- endif -%}
{%- endfor -%}
)";

constexpr std::array<std::pair<const char*, const char*>, 4> kTemplates = {
    {{"alpaca", kAlpaca}, {"chatml", kChatml}, {"llama3", kLlama3}, {"plain", kPlain}}};

}  // namespace

std::vector<std::string> built_in_chat_templates() {
  std::vector<std::string> names;
  for (const auto& [name, source] : kTemplates) names.emplace_back(name);
  return names;
}

ChatTemplate built_in_chat_template(const std::string& name, const nlohmann::ordered_json& special_tokens) {
  std::string names;
  for (const auto& [known, source] : kTemplates) {
    if (name == known)
      return {Template::parse(std::string(kContent) + source, "chat template '" + name + "'"), special_tokens};
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  throw Error(ExitCode::usage, {.what = "no chat template is called '" + name + "'", .hint = "there are: " + names});
}

}  // namespace gputrain::chat
