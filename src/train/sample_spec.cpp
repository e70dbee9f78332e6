#include "gputrain/train/sample_spec.hpp"

namespace gputrain::train {

using config::Change;

namespace {

/// Refuses what leaves the model nothing to write.
void check(const SampleSpec& spec, config::SpecIssues& issues) {
  if (spec.messages.empty() && spec.texts().empty())
    issues.add("prompt", "there is no prompt", "leave it out, or name one");
  for (size_t i = 0; i < spec.messages.size(); ++i) {
    const auto& messages = spec.messages[i].values;
    const std::string one = "conversation " + std::to_string(i + 1);
    if (messages.empty()) {
      issues.add("messages", one + " has no message", "write a text, or a list of {role, content}");
    } else if (messages.back().role == "assistant") {
      issues.add("messages", one + " ends with an answer, which the model is to write",
                 "leave out the assistant's last message");
    }
  }
}

}  // namespace

std::vector<std::string> SampleSpec::texts() const {
  if (prompt) return prompt->values;
  return messages.empty() ? std::vector<std::string>{"\n"} : std::vector<std::string>{};
}

void MessageSpec::describe(config::Description<MessageSpec>& d) {
  d.summary("a message of a conversation");
  d.key("role", &MessageSpec::role, "who says it, as the chat template knows it").change(Change::safe);
  d.key("content", &MessageSpec::content, "what it says").required().change(Change::safe);
}

void SampleSpec::describe(config::Description<SampleSpec>& d) {
  d.summary("texts that the model writes after training, and while it trains");
  d.key("prompt", &SampleSpec::prompt,
        "what a text starts with, or several; null: a new line, or nothing if there are messages")
      .change(Change::safe);
  d.key("messages", &SampleSpec::messages,
        "conversations that the model answers by the chat template, up to the end of its turn: each is what a user "
        "says, or a list of messages")
      .change(Change::safe);
  d.key("max_new_tokens", &SampleSpec::max_new_tokens, "most tokens to write")
      .at_least(1)
      .change(Change::safe)
      .aliases({"sample.max_tokens"});
  d.key("temperature", &SampleSpec::temperature, "0: always the most likely token; 1: the model's probabilities")
      .at_least(0)
      .change(Change::safe);
  d.key("top_k", &SampleSpec::top_k, "draw only from the k most likely tokens; null: from all")
      .at_least(1)
      .change(Change::safe);
  d.key("interval", &SampleSpec::interval, "time between texts while it trains; null: only after training")
      .above(0)
      .change(Change::safe);
  d.check([](const SampleSpec& spec, config::SpecIssues& issues) { check(spec, issues); });
}

}  // namespace gputrain::train
