// `gputrain generate`: continues prompts with a trained language model.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chat_prompts.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/generation/generate.hpp"
#include "gputrain/generation/text_stream.hpp"
#include "gputrain/job/commands.hpp"
#include "gputrain/setup/language_model.hpp"

namespace gputrain::app {
namespace {

/// A text to continue, and where it was read.
struct Prompt {
  std::string text, place;
};

std::string text_of_line(const std::string& line, const std::string& place) {
  const auto value = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto found = value.is_object() ? value.find("prompt") : value.end();
  if (found != value.end() && found->is_string()) return found->get<std::string>();
  throw Error(
      ExitCode::data,
      {.what = "the line has no text under \"prompt\"", .where = place, .hint = "each line is {\"prompt\": \"...\"}"});
}

/// One prompt a line, in a .jsonl file a JSON object.
std::vector<Prompt> read_prompts(const std::string& path) {
  std::ifstream file(path);
  const bool is_json = path.ends_with(".jsonl");
  std::vector<Prompt> prompts;
  for (std::string line; std::getline(file, line);) {
    const std::string place = path + ":" + std::to_string(prompts.size() + 1);
    prompts.push_back({is_json ? text_of_line(line, place) : line, place});
  }
  if (prompts.empty()) {
    throw Error(ExitCode::data,
                {.what = file.is_open() ? "there are no prompts" : "cannot open the file", .where = path});
  }
  return prompts;
}

generation::Options options_of(const GenerateRequest& request, const LanguageModel& model) {
  const bool filters = request.top_k > 0 || request.top_p < 1 || request.min_p > 0;
  if (filters && request.temperature == 0) {
    throw Error(ExitCode::usage,
                {.what = "--top-k, --top-p and --min-p choose what is drawn from, but at temperature 0 "
                         "nothing is drawn",
                 .hint = "--temperature 1"});
  }
  return {.sampling = {.repetition_penalty = request.repetition_penalty,
                       .temperature = request.temperature,
                       .top_k = request.top_k,
                       .top_p = request.top_p,
                       .min_p = request.min_p},
          .seed = static_cast<uint64_t>(request.seed),
          .max_new_tokens = request.max_new_tokens,
          .end_tokens = model.end_tokens,
          .context = {.length = model.limits.length, .has_one_length = !model.context.device.is_cpu()}};
}

/// Continues prompts and prints what comes.
class Writer {
 public:
  Writer(const GenerateRequest& request, LanguageModel& model)
      : request_(request), model_(model), options_(options_of(request, model)) {}

  /// Tokens that end a text, besides the model's own.
  void end_at(const std::vector<int64_t>& tokens) {
    options_.end_tokens.insert(options_.end_tokens.end(), tokens.begin(), tokens.end());
    std::ranges::sort(options_.end_tokens);
  }

  std::vector<int64_t> tokens_of(const Prompt& prompt) const {
    const bool adds_special = model_.adds_special_tokens && !request_.chat;  // a template spells them out
    auto tokens = adds_special ? model_.published->encode_whole(prompt.text, prompt.place)
                               : model_.tokenizer->encode(prompt.text, prompt.place);
    if (tokens.empty()) throw Error(ExitCode::usage, {.what = "the prompt is empty", .where = prompt.place});
    const int64_t highest = *std::ranges::max_element(tokens);
    if (highest < model_.limits.vocabulary) return tokens;
    throw Error(ExitCode::data, {.what = "the prompt has token " + grouped(highest) + ", but the model knows " +
                                         counted(model_.limits.vocabulary, "token") + ": the tokenizer is another's",
                                 .where = prompt.place});
  }

  /// One prompt: its text is printed as it comes, and returned.
  std::string write(const Prompt& prompt) {
    const std::vector<std::vector<int64_t>> texts{tokens_of(prompt)};
    auto stream = stream_after(texts[0]);
    std::string text;
    const auto add = [&](const std::string& more) {
      text += more;
      show(more);
    };
    continue_texts(texts, [&](size_t, int64_t token) { add(stream.add(token)); });
    add(stream.finish());
    show("\n");
    return text;
  }

  /// Many prompts: each text is printed when those beside it are complete. Returns the last one.
  std::string write_all(const std::vector<Prompt>& prompts) {
    std::string last;
    for (size_t begin = 0; begin < prompts.size(); begin += static_cast<size_t>(request_.batch_size)) {
      const size_t end = std::min(prompts.size(), begin + static_cast<size_t>(request_.batch_size));
      std::vector<std::vector<int64_t>> texts;
      for (size_t i = begin; i < end; ++i) texts.push_back(tokens_of(prompts[i]));
      const auto continued = continue_texts(texts, {});
      for (size_t i = 0; i < texts.size(); ++i) last = print(texts[i], continued[i]);
      std::fflush(stdout);
    }
    return last;
  }

  /// Tokens and time so far.
  std::string summary() const {
    return fmt::format("{} after {} in {:.2f} s: {:.1f} tokens/s", counted(written_, "token"), counted(read_, "token"),
                       seconds_, seconds_ > 0 ? static_cast<double>(written_) / seconds_ : 0);
  }

 private:
  generation::TextStream stream_after(const std::vector<int64_t>& tokens) const {
    const auto is_hidden = [this](int64_t token) {
      return std::ranges::binary_search(options_.end_tokens, token) ||
             (model_.published != nullptr && model_.published->is_special(token));
    };
    return {*model_.tokenizer, tokens, is_hidden};
  }

  std::vector<generation::Continuation> continue_texts(const std::vector<std::vector<int64_t>>& texts,
                                                       const generation::Watch& watch) {
    const auto begin = std::chrono::steady_clock::now();
    auto continued = generation::generate(*model_.built.model, texts, options_, watch);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (size_t i = 0; i < texts.size(); ++i) {
      read_ += std::ssize(texts[i]);
      written_ += std::ssize(continued[i].tokens);
      if (continued[i].is_full && !continued[i].is_ended) {
        log::warning("a text ends because the model reads no more than " + counted(options_.context.length, "token"));
      }
    }
    return continued;
  }

  std::string print(const std::vector<int64_t>& prompt, const generation::Continuation& continued) {
    auto stream = stream_after(prompt);
    std::string text;
    for (const int64_t token : continued.tokens) text += stream.add(token);
    text += stream.finish();
    if (!request_.json) {
      show((printed_++ > 0 ? "---\n" : "") + text + "\n");
      return text;
    }
    const nlohmann::ordered_json line{{"prompt_tokens", prompt},
                                      {"tokens", continued.tokens},
                                      {"text", text},
                                      {"finish", continued.is_ended ? "stop" : "length"}};
    std::printf("%s\n", line.dump().c_str());
    return text;
  }

  /// A terminal obeys control characters, and a model may write any.
  void show(const std::string& text) const {
    const std::string shown = isatty(STDOUT_FILENO) == 1 ? printable(text, "\n\t") : text;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  }

  const GenerateRequest& request_;
  LanguageModel& model_;
  generation::Options options_;
  int64_t read_ = 0, written_ = 0, printed_ = 0;
  double seconds_ = 0;
};

/// Prompts from stdin, line by line; with a conversation, one line answers the other.
void answer_lines(Writer& writer, bool json, Conversation* conversation) {
  const bool asks = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
  int64_t number = 0;
  while (true) {
    if (asks) std::fputs("> ", stderr);
    Prompt prompt{.text = {}, .place = "stdin:" + std::to_string(++number)};
    if (!std::getline(std::cin, prompt.text)) break;
    if (prompt.text.empty()) continue;
    if (conversation != nullptr) prompt.text = conversation->ask(prompt.text);
    const std::string answer = json ? writer.write_all({prompt}) : writer.write(prompt);
    if (conversation != nullptr) conversation->note_answer(answer);
  }
  if (asks) std::fputs("\n", stderr);
}

}  // namespace

int generate_command(const GenerateRequest& request) {
  std::vector<Prompt> prompts;
  if (request.prompt) prompts.push_back({*request.prompt, "--prompt"});
  if (!request.prompts.empty()) prompts = read_prompts(request.prompts);
  const auto model =
      open_language_model({.folder = request.folder, .set = request.set, .tokenizer = request.tokenizer});
  const device::Reading reading(model->built.arena->working_copy());
  Writer writer(request, *model);
  std::optional<Conversation> conversation;
  if (request.chat) {
    conversation.emplace(*model, request.system);
    writer.end_at(conversation->end_tokens());
    for (Prompt& prompt : prompts) {
      prompt.text = conversation->ask(prompt.text);
      conversation->begin_anew();
    }
  }
  if (prompts.empty()) {
    answer_lines(writer, request.json, conversation ? &*conversation : nullptr);
  } else if (prompts.size() == 1 && !request.json) {
    writer.write(prompts[0]);
  } else {
    writer.write_all(prompts);
  }
  std::fprintf(stderr, "%s\n", writer.summary().c_str());
  return 0;
}

}  // namespace gputrain::app
