// Lets a language model write at the prompts of eval.sample.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/chat/model_templates.hpp"
#include "gputrain/generation/generate.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/monitor/record.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"
#include "gputrain/train/spec.hpp"

namespace gputrain::train {

/// A text to continue, or a conversation to answer.
struct SamplePrompt {
  std::string place;            // "eval.sample.messages[1]"
  monitor::WrittenText begun;   // without what the model writes
  std::vector<int64_t> tokens;  // at least one
};

/// What writes conversations as texts. No template: there are none.
struct ConversationForm {
  const chat::ChatTemplate* chat_template = nullptr;
  std::optional<std::string> variables = {};  // a JSON object, for the template
};

/// Returns the prompts of a job: first the texts, then the conversations, up to the answer. Throws Error(usage) or
/// Error(data), with the place, for one that has no token or that the template refuses.
std::vector<SamplePrompt> prompts_of(const SampleSpec& spec, const tokenizers::Tokenizer& tokenizer,
                                     const ConversationForm& form);

struct SampleOptions {
  SampleSpec spec;
  std::vector<int64_t> end_tokens;  // ascending
  int64_t text_length = 0;          // tokens that the model sees of a text, which may become longer
  uint64_t seed = 0;
};

/// Throws Error(usage) for a conversation that leaves no room for an answer, and for tokens that the model does not
/// know.
void check_prompts(const std::vector<SamplePrompt>& prompts, const models::Model& model, const SampleOptions& options);

/// Returns what the model writes at each prompt: max_new_tokens tokens, or up to the first end token, which is left
/// out. An answer also ends where the model can read no more. Depends only on weights, prompts and seed. Leaves the
/// model in evaluation mode and does not use its random generators.
std::vector<monitor::WrittenText> write_samples(models::Model& model, const tokenizers::Tokenizer& tokenizer,
                                                const std::vector<SamplePrompt>& prompts, const SampleOptions& options);

}  // namespace gputrain::train
