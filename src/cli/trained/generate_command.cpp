// Command `gputrain generate`: continues prompts with a trained language model.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/chat/model_templates.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/generation/generate.hpp"
#include "gputrain/generation/text_stream.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::app {
namespace {

using OrderedJson = nlohmann::ordered_json;

chat::ChatTemplate template_of(const trained::Model& model) {
  if (model.published) return chat::choose_chat_template(model.chat_template, model.tokenizer_folder);
  if (model.chat_template) return chat::choose_chat_template(model.chat_template, {});
  throw Error(ExitCode::usage, {.what = "the model has no chat template: it was not trained on conversations",
                                .where = "--chat",
                                .hint = "leave it out, or set data.text.chat_template"});
}

/// Messages so far, as a text that the model continues with its answer.
class Conversation {
 public:
  /// Starts with the system's message. Throws Error(usage) if the model's tokenizer is not a published one; Error(data)
  /// if there is no chat template.
  Conversation(const trained::Model& model, const std::string& system) : template_(template_of(model)) {
    if (!system.empty()) add("system", system);
    kept_ = messages_.size();
  }

  /// Adds a message of the user, and returns the text before the answer.
  std::string ask(const std::string& text) {
    add("user", text);
    return template_.render(messages_, /*add_generation_prompt=*/true, OrderedJson::object()).text;
  }
  void note_answer(const std::string& text) { add("assistant", text); }
  /// Forgets all messages except the system's.
  void begin_anew() { messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(kept_), messages_.end()); }

 private:
  void add(const char* role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }

  chat::ChatTemplate template_;
  OrderedJson messages_ = OrderedJson::array();
  size_t kept_ = 0;  // number of first messages, which are never forgotten
};

/// Text to continue, and its place in the input.
struct Prompt {
  std::string text, place;
};

std::string text_of_line(const std::string& line, const std::string& place) {
  const auto value = parse_json(line);
  const auto found = value.is_object() ? value.find("prompt") : value.end();
  if (found != value.end() && found->is_string()) return found->get<std::string>();
  throw Error(
      ExitCode::data,
      {.what = "the line has no text under \"prompt\"", .where = place, .hint = "each line is {\"prompt\": \"...\"}"});
}

/// Reads a line without the carriage return of Windows.
bool next_line(std::istream& stream, std::string& line) {
  if (!std::getline(stream, line)) return false;
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

/// Reads one prompt per line, from a .jsonl file a JSON object. Skips empty lines, as on stdin.
std::vector<Prompt> read_prompts(const std::string& path) {
  std::ifstream file(path);
  const bool is_json = path.ends_with(".jsonl");
  std::vector<Prompt> prompts;
  int64_t number = 0, empty = 0;
  for (std::string line; next_line(file, line);) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (number++ == 0 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    const std::string place = path + ":" + std::to_string(number);
    if (line.empty()) {
      ++empty;
    } else {
      prompts.push_back({is_json ? text_of_line(line, place) : line, place});
    }
  }
  if (prompts.empty()) {
    throw Error(ExitCode::data,
                {.what = file.is_open() ? "there are no prompts" : "cannot open the file", .where = path});
  }
  if (empty > 0) log::warning(path + ": " + counted(empty, "empty line") + " passed over");
  return prompts;
}

generation::Options options_of(const GenerateRequest& request, const trained::Model& model) {
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
          .end_tokens = model.files.end_tokens,
          .context = {.length = model.longest_text, .has_one_length = !model.context.device.is_cpu()},
          .make_graphs = model.make_graphs};
}

/// Writer that continues prompts and prints the texts.
class Writer {
 public:
  Writer(const GenerateRequest& request, trained::Model& model)
      : request_(request), model_(model), options_(options_of(request, model)) {
    for (const std::string& text : request.stop) end_at(text);
    std::ranges::sort(options_.end_tokens);
  }

  /// Continues one prompt; its text is printed as it is generated, and returned.
  std::string write(const Prompt& prompt) {
    const Answer answer = answers_to({tokens_of(prompt)}, [this](const std::string& more) { show(more); }).front();
    show("\n");
    return answer.text;
  }

  /// Continues many prompts: each text is printed when its batch is complete. Returns the last one.
  std::string write_all(const std::vector<Prompt>& prompts) {
    std::vector<std::vector<int64_t>> texts;
    for (const Prompt& prompt : prompts) texts.push_back(tokens_of(prompt));
    std::string last;
    for (size_t begin = 0; begin < texts.size(); begin += static_cast<size_t>(request_.batch_size)) {
      const size_t end = std::min(texts.size(), begin + static_cast<size_t>(request_.batch_size));
      const std::vector<std::vector<int64_t>> some(texts.begin() + static_cast<std::ptrdiff_t>(begin),
                                                   texts.begin() + static_cast<std::ptrdiff_t>(end));
      const auto answers = answers_to(some, {});
      for (size_t i = 0; i < some.size(); ++i) print(some[i], answers[i]);
      last = answers.back().text;
      std::fflush(stdout);
    }
    return last;
  }

  /// Describes tokens and time so far.
  std::string summary() const {
    return fmt::format("{} after {} in {:.2f} s: {:.1f} tokens/s", counted(written_, "token"), counted(read_, "token"),
                       seconds_, seconds_ > 0 ? static_cast<double>(written_) / seconds_ : 0);
  }

 private:
  struct Answer {
    generation::Continuation continued;
    std::string text;
  };

  /// Adds a text that ends an answer; if it is one special token, to the model's end tokens.
  void end_at(const std::string& stop) {
    const auto tokens = model_.tokenizer->encode(stop, "--stop");
    const bool is_shown =
        std::ranges::none_of(tokens, [&](int64_t token) { return model_.tokenizer->is_special(token); });
    if (is_shown) return stops_.push_back(stop);
    if (tokens.size() == 1) return options_.end_tokens.push_back(tokens.front());
    throw Error(ExitCode::usage, {.what = "has a special token beside other text, but special tokens are not written",
                                  .where = "--stop",
                                  .hint = "the special token alone: --stop '<|im_end|>'"});
  }

  std::vector<int64_t> tokens_of(const Prompt& prompt) const {
    const bool adds_special = model_.adds_special_tokens && !request_.chat;  // a template spells them out
    auto tokens = adds_special ? model_.published->encode_whole(prompt.text, prompt.place)
                               : model_.tokenizer->encode(prompt.text, prompt.place);
    generation::check_prompt(tokens, options_.context, prompt.place);
    const int64_t highest = *std::ranges::max_element(tokens);
    if (highest < model_.vocabulary) return tokens;
    throw Error(ExitCode::data,
                {.what = "the prompt has token " + grouped(highest) + ", but the model knows " +
                         counted(model_.vocabulary, "token") + ": the tokenizer belongs to another model",
                 .where = prompt.place});
  }

  generation::TextStream stream_after(const std::vector<int64_t>& tokens) const {
    const auto is_hidden = [this](int64_t token) {
      return std::ranges::binary_search(options_.end_tokens, token) || model_.tokenizer->is_special(token);
    };
    return {*model_.tokenizer, tokens, is_hidden, stops_};
  }

  /// Continues texts, and passes the new parts to `tell` if it is not null.
  std::vector<Answer> answers_to(const std::vector<std::vector<int64_t>>& texts,
                                 const std::function<void(const std::string&)>& tell) {
    std::vector<generation::TextStream> streams;
    for (const auto& text : texts) streams.push_back(stream_after(text));
    std::vector<Answer> answers(texts.size());
    const auto add = [&](size_t i, const std::string& more) {
      answers[i].text += more;
      if (tell) tell(more);
    };
    options_.is_complete = [&](size_t i, std::span<const int64_t> written) {
      add(i, streams[i].add(written.back()));
      return streams[i].is_stopped();
    };
    const auto begin = std::chrono::steady_clock::now();
    auto continued = generation::generate(*model_.built.model, texts, options_);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (size_t i = 0; i < texts.size(); ++i) {
      add(i, streams[i].finish());
      read_ += std::ssize(texts[i]);
      written_ += std::ssize(continued[i].tokens);
      if (continued[i].is_full && !continued[i].is_ended)
        log::warning("a text ends because the model reads no more than " + counted(options_.context.length, "token"));
      answers[i].continued = std::move(continued[i]);
    }
    return answers;
  }

  void print(const std::vector<int64_t>& prompt, const Answer& answer) {
    if (!request_.json) return show((printed_++ > 0 ? "---\n" : "") + answer.text + "\n");
    const nlohmann::ordered_json line{{"prompt_tokens", prompt},
                                      {"tokens", answer.continued.tokens},
                                      {"text", answer.text},
                                      {"finish", answer.continued.is_ended ? "stop" : "length"}};
    std::printf("%s\n", line.dump().c_str());
  }

  /// Prints a text; on a terminal, which obeys control characters, without those.
  void show(const std::string& text) const {
    const std::string shown = isatty(STDOUT_FILENO) == 1 ? printable(text, "\n\t") : text;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  }

  const GenerateRequest& request_;
  trained::Model& model_;
  generation::Options options_;
  std::vector<std::string> stops_;
  int64_t read_ = 0, written_ = 0, printed_ = 0;
  double seconds_ = 0;
};

/// Answers prompts from stdin, line by line; with a conversation, each line continues it.
void answer_lines(Writer& writer, bool json, Conversation* conversation) {
  const bool asks = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
  int64_t number = 0;
  while (true) {
    if (asks) std::fputs("> ", stderr);
    Prompt prompt{.text = {}, .place = "stdin:" + std::to_string(++number)};
    if (!next_line(std::cin, prompt.text)) break;
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
  trained::Source source =
      trained::find({.folder = request.folder, .set = request.set, .tokenizer = request.tokenizer});
  trained::check_continues_texts(source, "generate");
  const auto model = [&] {
    const monitor::Console shows_what_takes_long(monitor::Console::detect(true));
    return trained::open(std::move(source));
  }();
  const device::Reading reading(model->built.arena->working_copy());
  Writer writer(request, *model);
  std::optional<Conversation> conversation;
  if (request.chat) {
    conversation.emplace(*model, request.system);
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
