#include "gputrain/chat/conversation.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "says.hpp"

namespace gputrain::chat {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const ordered_json kConversation = {say("system", "s"), say("user", "u"), say("assistant", "ä"), say("user", "v"),
                                    say("assistant", "b")};

ChatTemplate made_of(const std::string& source) { return {Template::parse(source, "t"), {{"eos_token", "</s>"}}}; }

std::vector<std::string> learned(const ChatTemplate& chat_template, const ordered_json& messages) {
  const LearnedText result = Conversations(chat_template, kNoVariables, {}).learned(messages, kNoVariables);
  std::vector<std::string> texts;
  for (const auto& [range, message] : result.learned)
    texts.push_back(result.text.substr(range.begin, range.end - range.begin));
  return texts;
}

/// What is wrong.
template <class Action>
std::string reason_of(const Action& action) {
  try {
    action();
    return "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.parts().what;
  }
}

constexpr const char* kUnmarked =
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

TEST(Conversation, LearnsWhatTheTemplateMarks) {
  EXPECT_THAT(learned(built_in_chat_template("chatml", kNoVariables), kConversation),
              ElementsAre("ä<|im_end|>", "b<|im_end|>"));
  EXPECT_THAT(learned(built_in_chat_template("llama3", kNoVariables), ordered_json::array({say("user", "u")})),
              IsEmpty());
}

TEST(Conversation, LearnsTheDifferenceWithoutMarks) {
  EXPECT_THAT(learned(made_of(kUnmarked), kConversation), ElementsAre("ä</s>\n", "b</s>\n"));
  EXPECT_THAT(learned(made_of(kUnmarked), {say("user", "u"), say("assistant", "a"), say("assistant", "b")}),
              ElementsAre("a</s>\n", "b</s>\n"));
}

TEST(Conversation, LearnsWithoutHeadersToo) {
  const auto instructions = made_of(
      "{% for m in messages %}{{ ' ' ~ m.content ~ eos_token if m.role == 'assistant' else '[INST] ' ~ m.content ~ "
      "' [/INST]' }}{% endfor %}");
  EXPECT_THAT(learned(instructions, kConversation), ElementsAre(" ä</s>", " b</s>"));
}

TEST(Conversation, LearnsTurnsWhoseThoughtsAreLeftOut) {
  const auto thinking = made_of(
      "{% for m in messages %}<{{ m.role }}>{{ '[thought]' if loop.last and m.role == 'assistant' }}{{ m.content }}</s>"
      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  EXPECT_THAT(learned(thinking, kConversation), ElementsAre("ä</s>", "[thought]b</s>"));
}

TEST(Conversation, LearnsCallsOfTools) {
  const auto calls = made_of(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor "
      "%}</s>"
      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  const ordered_json call = {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {{{"name", "f"}}}}};
  EXPECT_THAT(learned(calls, {say("user", "u"), call, say("tool", "3"), say("assistant", "b")}),
              ElementsAre("{\"name\": \"f\"}</s>", "b</s>"));
}

TEST(Conversation, LearnsWithoutAPromptForAnswers) {
  EXPECT_THAT(learned(made_of("{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"), kConversation),
              ElementsAre("ä</s>", "b</s>"));
}

TEST(Conversation, RefusesATemplateThatDoesNotTell) {
  const auto why = [](const std::string& source) {
    return reason_of([&] { learned(made_of(source), kConversation); });
  };
  EXPECT_THAT(why("{% for m in messages %}<{{ m.role }}>{{ m.content if loop.last else 'said' }}</s>{% endfor %}"
                  "{% if add_generation_prompt %}<assistant>{% endif %}"),
              HasSubstr("it does not write what messages say"));
  EXPECT_THAT(why("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                  "{% if add_generation_prompt %}<assistant>{% endif %}"),
              HasSubstr("would not learn to stop"));
  EXPECT_THAT(why("{% for m in messages %}{{ m.content }}{% endfor %}{% generation %}{% endgeneration %}"),
              HasSubstr("blocks are empty"));
}

TEST(Conversation, SaysWhichMessageIsWrong) {
  const auto why = [](const char* messages) {
    return reason_of([&] { check_messages(ordered_json::parse(messages)); });
  };
  EXPECT_THAT(why("{}"), HasSubstr("a list of messages"));
  EXPECT_THAT(why("[]"), HasSubstr("not empty"));
  EXPECT_THAT(why(R"([{"role": "user", "content": "a"}, 3])"), HasSubstr("message 2 of a conversation is no object"));
  EXPECT_THAT(why(R"([{"role": 1, "content": "a"}])"), HasSubstr("message 1 of a conversation has no 'role'"));
  EXPECT_THAT(why(R"([{"role": "user"}])"), HasSubstr("has neither 'content' nor 'tool_calls'"));
  EXPECT_THAT(why(R"([{"role": "assistant", "content": "a", "tool_calls": "f"}])"), HasSubstr("are no list"));
  EXPECT_THAT(why(R"([{"role": "user", "content": 5}])"), HasSubstr("neither a string nor a list of parts"));
  EXPECT_THAT(why(R"([{"role": "user", "content": [{"type": "image"}]}])"), HasSubstr("has a part that is no"));
  EXPECT_THAT(why(R"([{"role": "user", "content": "a", "weight": 0.5}])"),
              HasSubstr("'weight' that is neither 0 nor 1"));
  EXPECT_THAT(why(R"([{"role": "user", "content": "a", "train": "no"}])"), HasSubstr("neither true nor false"));
  EXPECT_THAT(why(R"([{"role": "user", "content": "a", "train_detail": []}])"), HasSubstr("'train_detail'"));
  EXPECT_EQ(why(R"([{"role": "user", "content": [{"type": "text", "text": "a"}]},
                    {"role": "assistant", "content": null, "tool_calls": []}])"),
            "accepted");
}

/// A question whose parts the template of Alpaca's prompts writes apart.
const ordered_json kAskedInParts{{"role", "user"}, {"content", "i\nx"}, {"alpaca", {{"instruction", "i"}, {"input", "x"}}}};

TEST(Conversation, ReadsRecordsOfThreeKinds) {
  const auto made = [](const char* record) { return messages_of(ordered_json::parse(record)); };
  EXPECT_EQ(made(R"({"messages": [{"role": "user", "content": "u"}]})"), ordered_json({say("user", "u")}));
  EXPECT_EQ(made(R"({"system": "s", "conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"},
                     {"from": "tool", "value": "t"}]})"),
            ordered_json({say("system", "s"), say("user", "u"), say("assistant", "a"), say("tool", "t")}));
  EXPECT_EQ(made(R"({"instruction": "i", "input": "x", "output": "o", "system": "s"})"),
            ordered_json({say("system", "s"), kAskedInParts, say("assistant", "o")}));
  EXPECT_EQ(made(R"({"instruction": "i", "input": "", "output": "o"})"),
            ordered_json({say("user", "i"), say("assistant", "o")}));
}

TEST(Conversation, ReadsRecordsAsOthersWriteThem) {
  const auto made = [](const char* record) { return messages_of(ordered_json::parse(record)); };
  const ordered_json two = {say("user", "u"), say("assistant", "a")};
  for (const char* record : {
           R"({"conversations": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})",
           R"({"messages": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]})",
           R"({"messages": [{"role": "User", "content": "u"}, {"role": "model", "content": "a"}]})",
           R"({"messages": "[{\"role\": \"human\", \"content\": \"u\"}, {\"role\": \"bot\", \"content\": \"a\"}]"})",
           R"({"instruction": "u", "context": "", "response": "a", "category": "x"})",
           R"({"instruction": "u", "output": "a", "history": null})",
       })
    EXPECT_EQ(made(record), two) << record;
  EXPECT_EQ(made(R"({"instruction": "i", "context": "x", "output": "o", "history": [["q", "r"]], "system": "s"})"),
            ordered_json({say("system", "s"), say("user", "q"), say("assistant", "r"), kAskedInParts, say("assistant", "o")}));
  EXPECT_EQ(made(R"({"system": "s", "messages": [{"role": "user", "content": "u"}]})"),
            ordered_json({say("system", "s"), say("user", "u")}));
  EXPECT_EQ(made(R"({"system": "s", "messages": [{"role": "system", "content": "own"}]})"),
            ordered_json({say("system", "own")}));
  const ordered_json calls = made(R"({"conversations": [{"from": "human", "value": "u"},
      {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
      {"from": "observation", "value": "3"}]})");
  EXPECT_EQ(calls[1].at("role"), "assistant");
  EXPECT_EQ(calls[1].at("tool_calls"),
            ordered_json::parse(R"([{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}])"));
  EXPECT_EQ(calls[2], say("tool", "3"));
}

TEST(Conversation, TellsKeysThatNobodyReads) {
  const Conversations conversations(made_of("{% for m in messages %}{{ m.content ~ m.name }}{% endfor %}"),
                                    kNoVariables, {});
  ordered_json message = say("user", "u");
  message.update({{"name", "n"}, {"weight", 1}, {"id", 3}, {"gone", nullptr}, {"score", 1}});
  EXPECT_THAT(conversations.unread_keys({message, message}), ElementsAre("id", "score"));
  EXPECT_THAT(built_in_chat_template("chatml", kNoVariables).source().name(), HasSubstr("chatml"));
  EXPECT_THAT(Conversations(built_in_chat_template("chatml", kNoVariables), kNoVariables, {}).marks(),
              ElementsAre("<|im_start|>", "<|im_end|>"));
}

TEST(Conversation, TellsKeysThatTheTemplateReadsOfOtherThings) {
  const auto unread = [](const std::string& source, const ordered_json& more) {
    ordered_json messages = {say("user", "u"), say("tool", "t"), say("assistant", "a")};
    for (ordered_json& message : messages) message.update(more);
    return Conversations(made_of("{% for m in messages %}" + source + "{% endfor %}"), kNoVariables, {})
        .unread_keys(messages);
  };
  const ordered_json more = {{"name", "Ada"}, {"id", 3}, {"type", "x"}, {"tool_call_id", "c"}};
  EXPECT_THAT(unread("{% for c in m.tool_calls or [] %}{{ c.name ~ c.id }}{% endfor %}{{ 'valid name, id, type' }}"
                     "{% for part in m.content if part is mapping %}{{ part.type ~ part['id'] }}{% endfor %}",
                     more),
              ElementsAre("name", "id", "type", "tool_call_id"));
  for (const char* name : {"m.name", "m['name']", "m.get('name')", "m['na' ~ 'me']"})
    EXPECT_THAT(unread("{{ m.content ~ " + std::string(name) + " }}", more), ElementsAre("id", "type", "tool_call_id"));
  EXPECT_THAT(unread("{{ m | tojson }}", more), IsEmpty());
  EXPECT_THAT(unread("{% if m.tool_call_id | length != 1 %}{{ raise_exception('long') }}{% endif %}{{ m.content }}",
                     {{"tool_call_id", "c"}}),
              IsEmpty());
  EXPECT_THAT(unread("{{ m.content ~ (m.name if m.role == 'user') }}", {{"name", "Ada"}}), ElementsAre("name"));
  EXPECT_THAT(unread("{{ m.content }}", {{"name", ""}, {"calls", ordered_json::array()}}), IsEmpty());
  // A tool's message has both for the reader alone.
  const ordered_json tool = {{"role", "tool"}, {"content", "t"}, {"name", "f"}, {"tool_call_id", "c"}};
  EXPECT_THAT(Conversations(made_of(kUnmarked), kNoVariables, {}).unread_keys({say("user", "u"), tool}), IsEmpty());
}

TEST(Conversation, TellsThoughtsThatTheTemplateDoesNotWrite) {
  const auto unread = [](const std::string& source, const char* key, const ordered_json& thought) {
    ordered_json messages = {say("user", "u"), say("assistant", "a")};
    messages[1][key] = thought;
    return Conversations(made_of(source), kNoVariables, {}).unread_keys(messages);
  };
  const std::string turn = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>";
  for (const char* key : {"thinking", "reasoning_content", "reasoning"}) {
    EXPECT_THAT(unread(turn + "{% endfor %}", key, "hm"), ElementsAre(key));
    EXPECT_THAT(unread(turn + "{% endfor %}", key, ""), IsEmpty());
    EXPECT_THAT(unread(turn + "{{ m.reasoning_content if loop.last }}{% endfor %}", key, "hm"), IsEmpty());
    EXPECT_THAT(unread(turn + "{{ m.thinking if m.tool_calls }}{% endfor %}", key, "hm"), IsEmpty());
  }
}

TEST(Conversation, SaysWhatIsWrongWithARecord) {
  const auto why = [](const char* record) { return reason_of([&] { messages_of(ordered_json::parse(record)); }); };
  EXPECT_THAT(why("{}"), HasSubstr("none of 'messages', 'conversations'"));
  EXPECT_THAT(why("[]"), HasSubstr("none of 'messages', 'conversations'"));
  EXPECT_THAT(why(R"({"instruction": 1, "output": "o"})"), HasSubstr("'instruction' of a record is not a string"));
  EXPECT_THAT(why(R"({"conversations": [{"from": "x", "value": "u"}]})"),
              HasSubstr("message 1 of a conversation is from 'x'"));
  EXPECT_THAT(why(R"({"conversations": 3})"), HasSubstr("a conversation is a list of messages"));
  EXPECT_THAT(why(R"({"messages": "text"})"), HasSubstr("a text that is no JSON list of messages"));
  EXPECT_THAT(why(R"({"instruction": "i", "output": "o", "history": [["a"]]})"), HasSubstr("'history' of a record"));
  EXPECT_THAT(why(R"({"messages": [3]})"), HasSubstr("message 1"));
}

}  // namespace
}  // namespace gputrain::chat
