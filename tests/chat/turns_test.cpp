// What is learned by templates in the shapes of published ones, which say nothing of what the assistant says.
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/chat/conversation.hpp"
#include "gputrain/core/error.hpp"
#include "says.hpp"

namespace gputrain::chat {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ordered_json calling(const std::string& content) {
  ordered_json message = say("assistant", content);
  message["tool_calls"] =
      ordered_json::parse(R"([{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}])");
  return message;
}

ChatTemplate turn_template(const std::string& source) {
  return {Template::parse(source, "t"), {{"bos_token", "<s>"}, {"eos_token", "</s>"}}};
}

/// The parts that are learned, joined where they touch.
std::vector<std::string> learned(const std::string& source, const ordered_json& messages, const Learning& learning = {},
                                 const ordered_json& variables = kNoVariables) {
  const LearnedText result = Conversations(turn_template(source), kNoVariables, learning).learned(messages, variables);
  std::vector<std::string> texts;
  size_t end = std::string::npos;
  for (const auto& [range, message] : result.learned) {
    const std::string text = result.text.substr(range.begin, range.end - range.begin);
    if (range.begin == end) {
      texts.back() += text;
    } else {
      texts.push_back(text);
    }
    end = range.end;
  }
  return texts;
}

std::string why(const std::string& source, const ordered_json& messages, const Learning& learning = {}) {
  try {
    learned(source, messages, learning);
    return "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.parts().what;
  }
}

// The end token where no answer is asked for.
constexpr const char* kPhi =
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}";

// Thoughts in turns after the last question alone; an empty thought in the last one.
constexpr const char* kThinking =
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
    "{% endif %}{% endfor %}{% for m in messages %}{% if m.role == 'assistant' %}{% set said = m.content or '' %}"
    "{% set thought = m.reasoning_content or '' %}{% if '</think>' in said %}"
    "{% set thought = said.split('</think>')[0].split('<think>')[-1] %}"
    "{% set said = said.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ '<|im|>assistant\\n' }}"
    "{% if loop.index0 > ns.last and (loop.last or thought) %}{{ '<think>' + thought + '</think>\\n' }}{% endif %}"
    "{{ said }}{% for c in m.tool_calls or [] %}{{ '<call>' ~ (c.function | tojson) ~ '</call>' }}{% endfor %}"
    "{{ '<|end|>\\n' }}{% else %}{{ '<|im|>' + m.role + '\\n' + m.content + '<|end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im|>assistant\\n' }}{% if enable_thinking is defined and not enable_thinking "
    "%}"
    "{{ '<think></think>\\n' }}{% endif %}{% endif %}";

// A prompt that begins the thoughts, which turns leave out.
constexpr const char* kDistilled =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{% set c = m.content.split('</think>')[-1] %}"
    "{{ '<｜Assistant｜>' + c + '<｜end｜>' }}{% else %}{{ '<｜User｜>' + m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}";

// No header at all.
constexpr const char* kInstructions =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content | trim + eos_token }}{% endif %}{% endfor %}";

// Another name of the role, trimmed words.
constexpr const char* kGemma =
    "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}"
    "{{ '<start_of_turn>' + role + '\\n' + m.content | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

// Nothing ends a turn but the header of the next one.
constexpr const char* kWithoutEnd =
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content | trim }}"
    "{% for c in m.tool_calls or [] %}{{ '<call>' + c.function.name + '</call>' }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

// A date, a loop over numbers, and words in parts alone.
constexpr const char* kNumbered =
    "{{ strftime_now('%d %B %Y') }}{% for i in range(messages | length) %}{% set m = messages[i] %}"
    "{{ m.role | capitalize }}:{% for part in m.content %}{% if part.type == 'text' %}{{ ' ' + part.text }}{% endif %}"
    "{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}";

std::string random_text(std::mt19937& draw) {
  static const std::vector<std::string> kPieces = {"a",          "rain ", "42",  "\n", "é", "😀",       "日本",
                                                   "<b>",        "</s",   "[1]", "<",  "|", "{{ x }}", "user",
                                                   "assistant:", "\t",    "\\",  "\"", "th"};
  std::string text(1, static_cast<char>('A' + draw() % 26));
  for (size_t left = draw() % 8; left > 0; --left) text += kPieces[draw() % kPieces.size()];
  return text + static_cast<char>('a' + draw() % 26);
}

TEST(Turns, LearnTheAssistantsWordsAndWhatEndsThem) {
  struct Shape {
    const char* name;
    const char* source;
    std::function<std::string(const std::string& said, bool is_last)> expected;
  };
  const std::vector<Shape> shapes = {
      {"phi", kPhi, [](auto& said, bool is_last) { return said + "<|end|>\n" + (is_last ? "</s>" : ""); }},
      {"thinking", kThinking,
       [](auto& said, bool is_last) { return (is_last ? "<think></think>\n" : "") + said + "<|end|>\n"; }},
      {"distilled", kDistilled, [](auto& said, bool) { return said + "<｜end｜>"; }},
      {"instructions", kInstructions, [](auto& said, bool) { return " " + said + "</s>"; }},
      {"gemma", kGemma, [](auto& said, bool) { return said + "<end_of_turn>\n"; }},
      {"without end", kWithoutEnd, [](auto& said, bool) { return said + "<|user|>"; }},
      {"numbered", kNumbered, [](auto& said, bool) { return " " + said + "<end_of_utterance>\n"; }},
  };
  std::mt19937 draw(1);
  for (const Shape& shape : shapes) {
    for (int trial = 0; trial < 300; ++trial) {
      ordered_json messages = ordered_json::array();
      std::vector<std::string> expected;
      const size_t turns = 1 + draw() % 5;
      for (size_t turn = 0; turn < turns; ++turn) {
        messages.push_back(say("user", random_text(draw)));
        const std::string said = random_text(draw);
        messages.push_back(say("assistant", said));
        expected.push_back(shape.expected(said, turn + 1 == turns));
      }
      ASSERT_EQ(learned(shape.source, messages), expected) << shape.name << ": " << messages.dump();
    }
  }
}

TEST(Turns, LearnThoughtsAndCallsAsTheTemplateWritesThem) {
  EXPECT_THAT(learned(kThinking, {say("user", "q"), say("assistant", "<think>hm</think>\nfirst"), say("user", "r"),
                                  say("assistant", "<think>aha</think>\nsecond")}),
              ElementsAre("first<|end|>\n", "<think>aha</think>\nsecond<|end|>\n"));
  EXPECT_THAT(learned(kThinking, {say("user", "rain?"), calling(""), say("tool", "dry"), say("assistant", "No.")}),
              ElementsAre("<call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</call><|end|>\n",
                          "<think></think>\nNo.<|end|>\n"));
  // The prompt begins the thought here, but the turn says it, too.
  EXPECT_THAT(learned(kThinking, {say("user", "q"), say("assistant", "a")}, {}, {{"enable_thinking", false}}),
              ElementsAre("<think></think>\na<|end|>\n"));
  EXPECT_THAT(learned(kDistilled, {say("user", "q"), say("assistant", "<thanks>")}), ElementsAre("<thanks><｜end｜>"));
}

TEST(Turns, HaveAllCallsOrAreRefused) {
  const std::string plain =
      "{% for m in messages %}{{ '<|im|>' + m.role + '\\n' + (m.content or '') + '<|end|>\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im|>assistant\\n' }}{% endif %}";
  const std::string first = plain.substr(0, plain.find("{% endfor %}")) +
                            "{% if m.tool_calls %}{{ m.tool_calls[0].function.name }}{% endif %}" +
                            plain.substr(plain.find("{% endfor %}"));
  const auto asked = say("user", "rain?");
  ordered_json two = calling("");
  two["tool_calls"].push_back({{"function", {{"name", "g"}, {"arguments", ordered_json::object()}}}});
  EXPECT_THAT(why(plain, {asked, calling("")}), HasSubstr("does not write message 2's call of 'f'"));
  EXPECT_THAT(why(plain, {asked, calling("I call f.")}), HasSubstr("message 2's call of 'f'"));
  EXPECT_THAT(why(plain, usual_messages({{{"from", "human"}, {"value", "rain?"}},
                                         {{"from", "function_call"}, {"value", R"({"name": "look"})"}}})),
              HasSubstr("message 2's call of 'look'"));
  EXPECT_EQ(why(first, {asked, calling("I call f.")}), "accepted");
  EXPECT_THAT(why(first, {asked, two}), HasSubstr("message 2's call of 'g'"));
  EXPECT_EQ(why(kThinking, {asked, two}), "accepted");
}

TEST(Turns, LeaveOutWhatAToolSaysWithinATurn) {
  constexpr const char* kEmbedded =
      "{% for m in messages %}{% if m.role != 'tool' %}{{ '<|' + m.role + '|>' + m.content }}{% if m.tool_calls %}"
      "{{ '<call>f</call>' }}{% for k in range(loop.index0 + 1, messages | length) %}{% set next = messages[k] %}"
      "{% if next.role == 'tool' %}{{ '<result>' + next.content + '</result>' }}{% endif %}{% endfor %}{% endif %}"
      "{{ '<|turn|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
  EXPECT_THAT(learned(kEmbedded, {say("user", "rain?"), calling("I look."), say("tool", "dry")}),
              ElementsAre("I look.<call>f</call>", "<|turn|>"));
}

TEST(Turns, EndWithTheNextHeaderIfNothingElseEndsThem) {
  EXPECT_THAT(learned(kWithoutEnd, {say("user", "q"), calling("x"), say("tool", "3"), say("assistant", "")}),
              ElementsAre("x<call>f</call><|tool|>", "<|user|>"));
  for (const ordered_json& none : {ordered_json(nullptr), ordered_json::array()}) {
    ordered_json answer = say("assistant", "x");
    answer["tool_calls"] = none;
    EXPECT_THAT(learned(kWithoutEnd, usual_messages({say("user", "q"), answer})), ElementsAre("x<|user|>"));
  }
  EXPECT_THAT(why("{% for m in messages %}### {{ m.role }}:\n{{ m.content }}\n\n{% endfor %}"
                  "{% if add_generation_prompt %}### assistant:\n{% endif %}",
                  {say("user", "q"), say("assistant", "a")}),
              HasSubstr("would not learn to stop"));
}

TEST(Turns, AreLearnedByRoleWeightAndEnd) {
  const ordered_json two = {say("user", "q"), say("assistant", "a"), say("user", "r"), say("assistant", "b")};
  using Ends = Learning::Ends;
  EXPECT_THAT(learned(kGemma, two, {.ends = Ends::none}), ElementsAre("a", "b"));
  EXPECT_THAT(learned(kGemma, two, {.ends = Ends::last}), ElementsAre("a", "b<end_of_turn>\n"));
  EXPECT_THAT(learned(kGemma, two, {.ends = Ends::all}),
              ElementsAre("<end_of_turn>\n", "a<end_of_turn>\n", "<end_of_turn>\n", "b<end_of_turn>\n"));
  EXPECT_THAT(learned(kGemma, two, {.roles = {"user"}}), ElementsAre("q<end_of_turn>\n", "r<end_of_turn>\n"));
  for (const ordered_json& wish : {ordered_json{{"weight", 0}}, ordered_json{{"train", false}}}) {
    ordered_json messages = two;
    messages[1].update(wish);
    EXPECT_THAT(learned(kGemma, messages), ElementsAre("b<end_of_turn>\n"));
    messages[3].update(wish);
    EXPECT_THAT(learned(kGemma, messages), IsEmpty());
  }
}

// The system's words within the user's first turn.
constexpr const char* kSystemInside =
    "{% set system = messages[0].content if messages[0].role == 'system' %}{% for m in messages if m.role != 'system' "
    "%}"
    "{% if m.role == 'user' %}{{ '[INST] ' + ('<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' if loop.first and system "
    "else '') + m.content | trim + ' [/INST]' }}{% else %}{{ ' ' + m.content + ' ' + eos_token }}{% endif %}{% endfor "
    "%}";
// The system's words before all turns, perhaps with tools behind them.
constexpr const char* kSystemBefore =
    "{% if messages[0].role == 'system' %}{{ '<|im|>system\\n' + messages[0].content | trim }}{% if tools %}"
    "{{ '\\n# Tools' }}{% endif %}{{ '<|end|>\\n' }}{% endif %}{% for m in messages %}"
    "{% if not loop.first or m.role != 'system' %}{{ '<|im|>' + m.role + '\\n' + m.content + '<|end|>\\n' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im|>assistant\\n' }}{% endif %}";

TEST(Turns, OfOthersAreTheirWordsAlone) {
  const ordered_json given = {say("system", " Be very brief. "), say("user", "q"), say("assistant", "a"),
                              say("user", "r"), say("assistant", "b")};
  EXPECT_THAT(learned(kSystemInside, given, {.roles = {"user"}}), ElementsAre("q [/INST]", "r [/INST]"));
  EXPECT_THAT(learned(kSystemInside, given, {.roles = {"system"}}), ElementsAre(" Be very brief. "));
  EXPECT_THAT(learned(kSystemInside, given, {.roles = {"user", "system"}}),
              ElementsAre(" Be very brief. ", "q [/INST]", "r [/INST]"));
  EXPECT_THAT(learned(kSystemBefore, given, {.roles = {"assistant", "system"}}),
              ElementsAre("Be very brief.<|end|>\n", "a<|end|>\n", "b<|end|>\n"));
  EXPECT_THAT(learned(kSystemBefore, given, {.roles = {"system"}, .ends = Learning::Ends::none}),
              ElementsAre("Be very brief."));
  EXPECT_THAT(learned(kSystemBefore, given, {.roles = {"system", "user"}}, {{"tools", {{{"name", "f"}}}}}),
              ElementsAre("Be very brief.", "q<|end|>\n", "r<|end|>\n"));
}

TEST(Turns, OfADeveloperAreThoseOfTheSystem) {
  ordered_json given = {say("developer", "Be brief."), say("user", "q"), say("assistant", "a")};
  for (const char* role : {"developer", "system"})
    EXPECT_THAT(learned(kSystemBefore, given, {.roles = {role}}), ElementsAre("Be brief.<|end|>\n"));
  given[0]["weight"] = 0;
  EXPECT_THAT(learned(kSystemBefore, given, {.roles = {"developer"}}), IsEmpty());
}

TEST(Turns, OfOthersAreRefusedIfTheirWordsAreNotFound) {
  const ordered_json given = {say("system", "Be brief."), say("user", "q"), say("assistant", "a")};
  const std::string upper =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | upper if m.role == 'system' else "
      "m.content }}</s>{% endfor %}";
  EXPECT_EQ(why(upper, given), "accepted");
  EXPECT_THAT(why(upper, given, {.roles = {"assistant", "system"}}),
              HasSubstr("does not tell where message 1 of the role 'system' says its words"));
}

TEST(Turns, OfMarkedTemplatesAreThoseOfTheirMessages) {
  constexpr const char* kMarked =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>"
      "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  ordered_json messages = {say("user", "q"), say("assistant", "a"), say("assistant", "b")};
  messages[1]["weight"] = 0;
  EXPECT_THAT(learned(kMarked, messages), ElementsAre("b</s>"));
  EXPECT_THAT(learned(kMarked, messages, {.ends = Learning::Ends::none}), ElementsAre("b"));
}

TEST(Turns, AreWrittenWithTheContentsThatTheTemplateReads) {
  const ordered_json parts =
      ordered_json::parse(R"([{"type": "text", "text": "an"}, {"type": "text", "text": "swer"}])");
  ordered_json messages = {say("user", "q"), {{"role", "assistant"}, {"content", parts}}};
  EXPECT_THAT(learned(kGemma, messages), ElementsAre("answer<end_of_turn>\n"));
  EXPECT_THAT(learned(kNumbered, messages), ElementsAre(" an swer<end_of_utterance>\n"));
  // Arguments as text and as JSON, for a template that writes JSON and one that adds texts.
  ordered_json call = calling("");
  for (const ordered_json& content : {ordered_json(nullptr), ordered_json("")})
    for (const ordered_json& arguments : {ordered_json{{"x", 1}}, ordered_json("{\"x\": 1}")}) {
      call["tool_calls"][0]["function"]["arguments"] = arguments;
      call["content"] = content;
      EXPECT_THAT(learned(kThinking, {say("user", "q"), call, say("tool", "t"), say("assistant", "b")}),
                  ElementsAre("<call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</call><|end|>\n",
                              "<think></think>\nb<|end|>\n"));
      EXPECT_THAT(
          learned("{% for m in messages %}<{{ m.role }}>{% if m.content is none %}"
                  "{{ m.tool_calls[0].function.name + m.tool_calls[0].function.arguments + '</s>' }}{% else %}{{ "
                  "m.content + '</s>' }}{% endif %}"
                  "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
                  {say("user", "q"), call}),
          ElementsAre("f{\"x\": 1}</s>"));
    }
  // An empty content stays where the template writes calls beside it.
  EXPECT_THAT(learned("{% for m in messages %}<{{ m.role }}>{{ m.content if m.content is defined else '-' }}"
                      "{% for c in m.tool_calls or [] %}{{ c.function.name ~ c.function.arguments.x }}{% endfor %}</s>"
                      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
                      {say("user", "q"), calling("")}),
              ElementsAre("f1</s>"));
}

TEST(Turns, AreRefusedWithTheReason) {
  const ordered_json two = {say("user", "Zq"), say("assistant", "Za"), say("user", "Zr"), say("assistant", "Zb")};
  EXPECT_THAT(why("{% set all = namespace(text='') %}{% for m in messages %}{% set all.text = all.text + m.content %}"
                  "{% endfor %}{{ all.text }}",
                  two),
              HasSubstr("it does not write a message where it goes through messages"));
  EXPECT_THAT(
      why("{% for m in messages %}{% if m.role == 'assistant' %}{{ messages[loop.index0 - 1].content + m.content "
          "+ '</s>' }}{% endif %}{% endfor %}",
          two),
      HasSubstr("it writes what others say within the assistant's turn"));
  EXPECT_THAT(why("{% for m in messages %}<{{ m.role }}>said</s>{% endfor %}", two),
              HasSubstr("it does not write what messages say"));
}

TEST(Turns, AreRefusedWhereCallsAreNullAndContentsLists) {
  constexpr const char* kAnswersLeftOut =
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content if m.content is string else m.content[0].text }}"
      "{% elif messages | length < 4 %}{{ m.content if m.content is string else m.content[0].text }}</s>{% endif %}"
      "{% endfor %}";
  ordered_json answer = say("assistant", "a"), parts = answer;
  answer["tool_calls"] = nullptr;
  parts["content"] = ordered_json::parse(R"([{"type": "text", "text": "a"}])");
  for (const ordered_json& said : {answer, parts})
    EXPECT_THAT(why(kAnswersLeftOut, usual_messages({say("user", "q"), said, say("user", "r"), said})),
                HasSubstr("it writes nothing for its messages"));
}

TEST(Turns, OfALongConversationTakeLinearTime) {
  const auto seconds = [](size_t count) {
    ordered_json messages = ordered_json::array();
    for (size_t i = 0; i < count; ++i) messages.push_back(say(i % 2 == 0 ? "user" : "assistant", "word word word"));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(learned(kPhi, messages).size(), count / 2);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  seconds(100);
  EXPECT_LT(seconds(4000), 40 * seconds(400) + 0.5);
}

}  // namespace
}  // namespace gputrain::chat
