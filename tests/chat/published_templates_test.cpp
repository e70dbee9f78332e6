// Learns by templates that packages bring. Those that trl marks for training say which parts are right.
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/chat/conversation.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/taken_warnings.hpp"
#include "support/python_reference.hpp"

namespace gputrain::chat {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Published {
  ordered_json templates, conversations;
};

Published published() {
  const fs::path folder = fs::path(::testing::TempDir()) / "published_templates";
  fs::create_directories(folder);
  EXPECT_TRUE(gputrain::testing::run_reference("chat/published_templates.py", {folder.string()}));
  std::ifstream file(folder / "published.json");
  ordered_json all = ordered_json::parse(file);
  fs::remove_all(folder);
  return {std::move(all["templates"]), std::move(all["conversations"])};
}

Conversations made_of(const Published& all, const std::string& name) {
  const ChatTemplate chat_template(Template::parse(all.templates.at(name), name),
                                   {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  return {chat_template, ordered_json::object(), {}};
}

struct Result {
  std::string text;
  std::vector<std::string> parts;
};

Result learned(const Conversations& conversations, const ordered_json& conversation) {
  LearnedText text = conversations.learned(conversation["messages"], conversation["variables"]);
  Result result;
  size_t end = std::string::npos;
  for (const auto& [range, message] : text.learned) {
    if (range.begin != end) result.parts.emplace_back();
    result.parts.back() += text.text.substr(range.begin, range.end - range.begin);
    end = range.end;
  }
  result.text = std::move(text.text);
  return result;
}

/// Some marks take in what the prompt for an answer already has: the header of the turn, or a line's end behind it.
std::string without_header(std::string part) {
  for (const char* header : {"<｜Assistant｜>", "<｜tool▁outputs▁end｜>", "<|start|>assistant"})
    if (part.starts_with(header)) return part.substr(std::string(header).size());
  return part;
}

/// Some marked templates write thoughts into every turn, the others into the last one.
std::string without_thoughts(const std::string& part) {
  std::string rest = part;
  const size_t open = rest.find("<think>"), close = rest.rfind("</think>");
  if (open != std::string::npos && close != std::string::npos) rest.erase(open, close + 8 - open);
  return rest.substr(std::min(rest.find_first_not_of('\n'), rest.size()));
}

TEST(PublishedTemplates, TeachWhatTheirMarkedTwinsMark) {
  GPUTRAIN_NEED_REFERENCE("trl");
  const Published all = published();
  size_t twins = 0, same = 0;
  for (const auto& [name, source] : all.templates.items()) {
    const std::string twin = name + "_training";
    if (!all.templates.contains(twin)) continue;
    ++twins;
    const Conversations ours = made_of(all, name), theirs = made_of(all, twin);
    for (const ordered_json& conversation : all.conversations) {
      SCOPED_TRACE(name + ": " + conversation.dump());
      Result found, marked;
      try {
        found = learned(ours, conversation);
        marked = learned(theirs, conversation);
      } catch (const Error&) {
        continue;  // see below
      }
      ASSERT_EQ(found.parts.size(), marked.parts.size());
      const bool is_same_text = found.text == marked.text;
      same += is_same_text ? 1 : 0;
      for (size_t i = 0; i < found.parts.size(); ++i) {
        const std::string mark = without_header(marked.parts[i]);
        if (is_same_text) {
          ASSERT_THAT(mark, AnyOf(found.parts[i], "\n" + found.parts[i]));
        } else {
          ASSERT_EQ(without_thoughts(found.parts[i]), without_thoughts(mark));
        }
      }
    }
  }
  EXPECT_GE(twins, 31);
  EXPECT_GE(same, 4000);
}

TEST(PublishedTemplates, RefuseOnlyWhatTheyThemselvesRefuse) {
  GPUTRAIN_NEED_REFERENCE("trl");
  const Published all = published();
  EXPECT_GE(all.templates.size(), 108);
  for (const auto& [name, source] : all.templates.items()) {
    const Conversations conversations = made_of(all, name);
    size_t taught = 0;
    log::TakenWarnings warnings;
    for (const ordered_json& conversation : all.conversations) {
      SCOPED_TRACE(name + ": " + conversation.dump());
      try {
        const Result result = learned(conversations, conversation);
        ASSERT_FALSE(result.parts.empty());
        for (const std::string& part : result.parts) ASSERT_FALSE(part.empty());
        ++taught;
      } catch (const Error& error) {
        // Some write calls only where a message has no words, or have no form for them.
        ASSERT_THAT(error.parts().what, AnyOf(HasSubstr("must alternate"), HasSubstr("roles are supported"),
                                              HasSubstr("System role not supported"), HasSubstr("Unexpected role"),
                                              HasSubstr("call of 'get_weather'")));
      }
    }
    EXPECT_GE(taught, 80) << name;
    // What is not written of these conversations; only one template that marks turns does not mark what ends them.
    for (const std::string& warning : warnings.take())
      EXPECT_THAT(warning, AnyOf(HasSubstr("does not read 'tools'"), HasSubstr("does not read 'enable_thinking'"),
                                 HasSubstr("records have tools"), HasSubstr("messages of the role 'system'"),
                                 HasSubstr(name == "axolotl/llava" ? "does not learn to stop" : "read 'tools'")));
  }
}

TEST(PublishedTemplates, ReadKeysOfMessagesOrNot) {
  GPUTRAIN_NEED_REFERENCE("trl");
  const Published all = published();
  const auto unread = [&](const std::string& name, const char* key) {
    ordered_json messages = {{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", "a"}}};
    for (ordered_json& message : messages) message[key] = "hm";
    return !made_of(all, name).unread_keys(messages).empty();
  };
  for (const char* name :
       {"trl/qwen3", "trl/qwen2_5", "trl/llama3_1", "trl/glm4moe", "trl/gptoss", "axolotl/mistral_v2v3"})
    for (const char* key : {"name", "id", "type"}) EXPECT_TRUE(unread(name, key)) << name << ": " << key;
  for (const char* name : {"trl/qwen2_5", "trl/llama3_1", "trl/phi3", "trl/gemma3", "axolotl/mistral_v2v3"})
    EXPECT_TRUE(unread(name, "reasoning_content")) << name;
  for (const char* name : {"trl/qwen3", "trl/glm4moe", "trl/gptoss", "trl/qwen3_5_think", "trl/nemotron_3_nano"})
    EXPECT_FALSE(unread(name, "reasoning_content")) << name;
}

}  // namespace
}  // namespace gputrain::chat
