#include "gputrain/train/sampler.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/chat/conversation.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/generation/text_stream.hpp"

namespace gputrain::train {
namespace {

using Json = nlohmann::ordered_json;

std::vector<int64_t> tokens_of(const std::string& text, const tokenizers::Tokenizer& tokenizer,
                               const std::string& place) {
  std::vector<int64_t> tokens = tokenizer.encode(text, place);
  if (tokens.empty())
    throw Error(ExitCode::usage,
                {.what = "the prompt has no token", .where = place, .hint = "give it at least one word"});
  return tokens;
}

/// Returns a conversation as people read it. What a user asks alone needs no role.
std::string shown(const std::vector<MessageSpec>& messages) {
  if (messages.size() == 1) return messages[0].content;
  std::string text;
  for (const MessageSpec& message : messages)
    text += (text.empty() ? "" : "\n\n") + message.role + ": " + message.content;
  return text;
}

Json variables_of(const ConversationForm& form) {
  Json variables = form.variables ? parse_json<Json>(*form.variables) : Json::object();
  if (!variables.is_object())
    throw Error(ExitCode::usage, {.what = "is no JSON object", .where = "data.text.chat_template_kwargs"});
  return variables;
}

std::string rendered(const std::vector<MessageSpec>& messages, const ConversationForm& form, const std::string& place) {
  Json list = Json::array();
  for (const MessageSpec& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
  try {
    return form.chat_template->render(chat::usual_messages(list), /*add_generation_prompt=*/true, variables_of(form))
        .text;
  } catch (const Error& refusal) {
    auto parts = refusal.parts();
    parts.where = place + (parts.where.empty() ? "" : ", " + parts.where);
    throw Error(refusal.code(), parts);
  }
}

int64_t longest_answered(const models::Model& model, const SampleOptions& options) {
  const auto limits = model.text_limits();
  return limits ? limits->length : options.text_length;
}

/// Returns the text of new tokens after a prompt, without those that are control.
std::string text_after(const std::vector<int64_t>& prompt, const std::vector<int64_t>& tokens,
                       const tokenizers::Tokenizer& tokenizer) {
  generation::TextStream stream(tokenizer, prompt, [&](int64_t token) { return tokenizer.is_special(token); });
  std::string text;
  for (const int64_t token : tokens) text += stream.add(token);
  return text + stream.finish();
}

}  // namespace

std::vector<SamplePrompt> prompts_of(const SampleSpec& spec, const tokenizers::Tokenizer& tokenizer,
                                     const ConversationForm& form) {
  std::vector<SamplePrompt> prompts;
  const auto add = [&](const std::string& place, const std::string& text, const std::string& shown, bool is_answer) {
    const std::string name = prompts.empty() ? "sample" : "sample/" + std::to_string(prompts.size() + 1);
    prompts.push_back({.place = place,
                       .begun = {.name = name, .prompt = shown, .text = {}, .is_answer = is_answer},
                       .tokens = tokens_of(text, tokenizer, place)});
  };
  const std::vector<std::string> texts = spec.texts();
  for (size_t i = 0; i < texts.size(); ++i)
    add("eval.sample.prompt" + (texts.size() > 1 ? "[" + std::to_string(i) + "]" : ""), texts[i], texts[i],
        /*is_answer=*/false);
  for (size_t i = 0; i < spec.messages.size(); ++i) {
    const auto& messages = spec.messages[i].values;
    const std::string place = "eval.sample.messages[" + std::to_string(i) + "]";
    GPUTRAIN_ASSERT(form.chat_template != nullptr, "conversations have a template");
    add(place, rendered(messages, form, place), shown(messages), /*is_answer=*/true);
  }
  return prompts;
}

void check_prompts(const std::vector<SamplePrompt>& prompts, const models::Model& model, const SampleOptions& options) {
  const auto limits = model.text_limits();
  for (const SamplePrompt& prompt : prompts) {
    if (prompt.begun.is_answer)
      generation::check_prompt(prompt.tokens, {.length = longest_answered(model, options)}, prompt.place);
    const int64_t highest = *std::ranges::max_element(prompt.tokens);
    if (limits && highest >= limits->vocabulary)
      throw Error(ExitCode::usage, {.what = "has token " + grouped(highest) + ", but the model knows " +
                                            counted(limits->vocabulary, "token"),
                                    .where = prompt.place,
                                    .hint = "leave out what the tokenizer writes as this token"});
  }
}

std::vector<monitor::WrittenText> write_samples(models::Model& model, const tokenizers::Tokenizer& tokenizer,
                                                const std::vector<SamplePrompt>& prompts,
                                                const SampleOptions& options) {
  std::vector<monitor::WrittenText> written;
  for (const SamplePrompt& prompt : prompts) written.push_back(prompt.begun);
  // Texts may become longer than what the model sees, answers may not.
  for (const bool is_answer : {false, true}) {
    std::vector<size_t> rows;
    std::vector<std::vector<int64_t>> texts;
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (prompts[i].begun.is_answer != is_answer) continue;
      rows.push_back(i);
      texts.push_back(prompts[i].tokens);
    }
    if (texts.empty()) continue;
    const generation::Options how{
        .sampling = {.temperature = options.spec.temperature, .top_k = options.spec.top_k.value_or(0)},
        .seed = options.seed,
        .max_new_tokens = options.spec.max_new_tokens,
        .end_tokens = options.end_tokens,
        // On a GPU use one length: choosing and compiling kernels per length takes longer than the whole sample.
        .context = {.length = is_answer ? longest_answered(model, options) : options.text_length,
                    .has_one_length = !model.context().device.is_cpu(),
                    .slides = !is_answer},
        .make_graphs = {},  // the memory of a step's graph is lent to this work, and holds no other graph
    };
    const auto continued = generation::generate(model, texts, how);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::vector<int64_t> tokens = continued[i].tokens;
      if (continued[i].is_ended) tokens.pop_back();
      written[rows[i]].text = text_after(texts[i], tokens, tokenizer);
    }
  }
  return written;
}

}  // namespace gputrain::train
