// Warnings of what a conversation gives and its template does not write.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/chat/conversation.hpp"
#include "gputrain/core/taken_warnings.hpp"
#include "says.hpp"

namespace gputrain::chat {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// What is told of a conversation that is learned twice.
std::vector<std::string> told(const std::string& source, const ordered_json& messages,
                              const ordered_json& variables = kNoVariables, const Learning& learning = {}) {
  log::TakenWarnings warnings;
  const Conversations conversations({Template::parse(source, "t"), {{"eos_token", "</s>"}}}, kNoVariables, learning);
  for (int i = 0; i < 2; ++i) conversations.learned(usual_messages(messages), variables);
  return warnings.take();
}

// No branch for other roles.
constexpr const char* kTwoRoles =
    "{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}{% elif m.role == 'assistant' %}"
    "<a>{{ m.content }}</s>{% endif %}\n{% endfor %}";
// The last system message stands before all others.
constexpr const char* kLastSystem =
    "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set ns.system = m.content %}{% endif %}{% endfor %}{{ ns.system }}{% for m in messages %}"
    "{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}</s>{% endif %}{% endfor %}";

TEST(Unwritten, MessagesAreToldByRole) {
  const ordered_json asked = say("user", "q"), answer = say("assistant", "a");
  EXPECT_THAT(told(kTwoRoles, {asked, answer}), IsEmpty());
  EXPECT_THAT(
      told(kTwoRoles, {say("developer", "Dark"), asked, answer, say("tool", "dry"), say("tool", "wet"), answer}),
      ElementsAre(HasSubstr("does not write messages of the role 'developer'"),
                  HasSubstr("does not write messages of the role 'tool'")));
  EXPECT_THAT(told(kLastSystem, {say("system", " Be brief.\n"), asked, answer}), IsEmpty());
  EXPECT_THAT(told(kLastSystem, {say("system", "Be brief."), asked, answer, say("system", "Be long."), asked, answer}),
              ElementsAre(HasSubstr("of the role 'system'")));
  EXPECT_THAT(told(kTwoRoles, {say("system", " "), asked, answer}), IsEmpty());
}

TEST(Unwritten, VariablesAreToldByName) {
  const std::string turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}";
  const ordered_json two = {say("user", "What does look do?"), say("assistant", "a")};
  const ordered_json tools = {{"tools", {{{"type", "function"}, {"function", {{"name", "look"}}}}}}};
  EXPECT_THAT(told(turns, two, {{"documents", {{{"text", "d"}}}}, {"enable_thinkin", false}}),
              ElementsAre(HasSubstr("does not read 'documents'"), HasSubstr("does not read 'enable_thinkin'")));
  EXPECT_THAT(told(turns + "{{ documents }}{{ enable_thinking }}", two,
                   {{"documents", {{{"text", "d"}}}}, {"enable_thinking", false}}),
              IsEmpty());
  EXPECT_THAT(told(turns, two, {{"documents", ordered_json::array()}, {"tools", nullptr}}), IsEmpty());
  EXPECT_THAT(told(turns + "{% set m = {} %}{{ m.mood }}", two, {{"mood", 1}}), ElementsAre(HasSubstr("'mood'")));
  EXPECT_THAT(told(turns + "{{ add_generation_prompt }}", two, {{"add_generation_prompt", true}}),
              ElementsAre(HasSubstr("'add_generation_prompt'")));
  EXPECT_THAT(told(turns, two, tools), ElementsAre(HasSubstr("does not read 'tools'")));
  EXPECT_THAT(told("{% if tools and tools | length > 1 %}{{ tools | tojson }}{% endif %}" + turns, two, tools),
              ElementsAre(HasSubstr("have tools, which the chat template does not write")));
  EXPECT_THAT(told("{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}" + turns, two, tools), IsEmpty());
}

TEST(Unwritten, EndsOfMarkedTurnsAreTold) {
  const auto marked = [](const std::string& inside, const std::string& behind) {
    return "{% for m in messages %}{{ '<|im|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% generation %}"
           "{{ m.content }}" +
           inside + "{% endgeneration %}" + behind + "{% else %}{{ m.content }}<|end|>\n{% endif %}{% endfor %}";
  };
  const ordered_json two = {say("user", "q"), say("assistant", "a"), say("user", "r"), say("assistant", "b")};
  const auto is_told = ElementsAre(HasSubstr("does not learn to stop"));
  EXPECT_THAT(told(marked("", "<|end|>\n"), two), is_told);
  EXPECT_THAT(told(marked("", "{{ eos_token }}"), two), is_told);
  EXPECT_THAT(told(marked("", ""), two), is_told);
  EXPECT_THAT(told(marked("<|end|>", "\n"), two), IsEmpty());
  EXPECT_THAT(told(marked("{{ eos_token }}", ""), two), IsEmpty());
  EXPECT_THAT(told(marked("", "<|end|>\n"), two, kNoVariables, {.ends = Learning::Ends::none}), IsEmpty());
  EXPECT_THAT(told(marked("", "<|end|>\n"), two, kNoVariables, {.roles = {"user"}}), IsEmpty());
}

}  // namespace
}  // namespace gputrain::chat
