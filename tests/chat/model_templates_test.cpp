#include "gputrain/chat/model_templates.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"

namespace gputrain::chat {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

const ordered_json kNothing = ordered_json::object();
const ordered_json kMessages = {{{"role", "system"}, {"content", "Be brief."}},
                                {{"role", "user"}, {"content", "Hello"}},
                                {{"role", "assistant"}, {"content", " Hi "}}};

class ModelTemplates : public ::testing::Test {
 protected:
  ModelTemplates() : folder_(fs::path(::testing::TempDir()) / "model_templates") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ModelTemplates() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string rendered(const ordered_json& messages = ordered_json::array(),
                       const ordered_json& variables = kNothing) const {
    return read_chat_template(folder_).render(messages, false, variables).text;
  }
  std::string refusal() const {
    try {
      return rendered();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      return error.parts().what + " at " + error.parts().where;
    }
  }

  fs::path folder_;
};

TEST_F(ModelTemplates, TakesTheFileBeforeTheConfig) {
  write("tokenizer_config.json", R"({"chat_template": "config {{ bos_token }}", "bos_token": "<s>"})");
  EXPECT_EQ(rendered(), "config <s>");
  write("chat_template.jinja", "file {{ bos_token }}");
  EXPECT_EQ(rendered(), "file <s>");
}

TEST_F(ModelTemplates, TakesTheDefaultOfSeveral) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "tools"},
                                                        {"name": "default", "template": "usual"}]})");
  EXPECT_EQ(rendered(), "usual");
  EXPECT_EQ(read_tool_template(folder_)->source().source(), "tools");
}

TEST_F(ModelTemplates, TakesOtherFilesThatTransformersWrites) {
  write("chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(rendered(), "processor");
  EXPECT_FALSE(read_tool_template(folder_).has_value());
  write("tokenizer_config.json", R"({"chat_template": "tokenizer"})");
  EXPECT_EQ(rendered(), "tokenizer");
  fs::create_directories(folder_ / "additional_chat_templates");
  write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(read_tool_template(folder_)->source().source(), "tools");
}

TEST_F(ModelTemplates, KnowsSpecialTokens) {
  write("chat_template.jinja", "{{ bos_token }} {{ eos_token }} {{ pad_token is defined }} {{ unk_token }}");
  write("tokenizer_config.json", R"({"bos_token": {"content": "<b>", "lstrip": false}, "pad_token": null})");
  write("special_tokens_map.json", R"({"bos_token": "<other>", "eos_token": {"content": "</e>"}, "unk_token": "<u>"})");
  EXPECT_EQ(rendered(), "<b> </e> False <u>");
  EXPECT_EQ(rendered(ordered_json::array(), {{"eos_token", "<mine>"}}), "<b> <mine> False <u>");
}

TEST_F(ModelTemplates, PassesWhatTransformersPasses) {
  write("chat_template.jinja",
        "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ enable_thinking }}"
        "{% for m in messages %}{{ m }}{% endfor %}");
  EXPECT_EQ(rendered({{{"role", "user"}, {"content", nullptr}, {"reasoning", "why"}}}, {{"enable_thinking", false}}),
            "TrueTrueFalseFalse{'thinking': 'why', 'role': 'user', 'reasoning': 'why', 'reasoning_content': 'why'}");
}

TEST_F(ModelTemplates, SaysWhatIsWrongWithFiles) {
  EXPECT_THAT(refusal(), HasSubstr("this model has no chat template at"));
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "tools"}]})");
  EXPECT_THAT(refusal(), HasSubstr("neither a string nor a list with one called \"default\""));
  write("tokenizer_config.json", R"({"chat_template": "{{ 1 | nope }}"})");
  EXPECT_THAT(refusal(), HasSubstr("tokenizer_config.json: chat_template:1"));
  write("tokenizer_config.json", "version https://git-lfs");
  EXPECT_THAT(refusal(), HasSubstr("not JSON"));
  write("tokenizer_config.json", "[]");
  EXPECT_THAT(refusal(), HasSubstr("expected a JSON object"));
}

TEST(BuiltInTemplates, GiveTheirFormats) {
  const auto rendered = [](const std::string& name, const ordered_json& tokens, bool prompt) {
    return built_in_chat_template(name, tokens).render(kMessages, prompt, kNothing);
  };
  const Rendered chatml = rendered("chatml", kNothing, true);
  EXPECT_EQ(chatml.text,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
            "<|im_start|>assistant\n Hi <|im_end|>\n<|im_start|>assistant\n");
  ASSERT_EQ(chatml.generated.size(), 1u);
  EXPECT_EQ(chatml.text.substr(chatml.generated[0].begin, chatml.generated[0].end - chatml.generated[0].begin),
            " Hi <|im_end|>");
  EXPECT_EQ(rendered("llama3", kNothing, false).text,
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHi<|eot_id|>");
  EXPECT_EQ(rendered("plain", {{"eos_token", "</s>"}}, true).text,
            "System: Be brief.\nUser: Hello\nAssistant: Hi</s>\nAssistant: ");
  EXPECT_EQ(rendered("alpaca", {{"eos_token", "</s>"}, {"bos_token", "<s>"}}, false).text,
            "<s>Be brief.\n\n### Instruction:\nHello\n\n### Response:\n Hi </s>");
}

TEST(BuiltInTemplates, KeepAnAlpacaInputApart) {
  const ordered_json asked{{"instruction", "Add."}, {"input", "1 and 2"}, {"output", "3"}};
  const ChatTemplate alpaca = built_in_chat_template("alpaca", {{"eos_token", "</s>"}});
  EXPECT_EQ(
      alpaca.render(messages_of(asked), false, kNothing).text,
      "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
      "response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 and "
      "2\n\n### Response:\n3</s>");
  EXPECT_EQ(built_in_chat_template("chatml", kNothing).render(messages_of(asked), false, kNothing).text,
            "<|im_start|>user\nAdd.\n1 and 2<|im_end|>\n<|im_start|>assistant\n3<|im_end|>\n");
}

TEST(BuiltInTemplates, TakeTextInPartsAndNothingElse) {
  for (const std::string& name : built_in_chat_templates()) {
    const ChatTemplate chat_template = built_in_chat_template(name, kNothing);
    const auto text_of = [&](const char* content) {
      return chat_template.render({{{"role", "user"}, {"content", ordered_json::parse(content)}}}, false, kNothing)
          .text;
    };
    EXPECT_EQ(text_of(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])"), text_of(R"("ab")")) << name;
    EXPECT_THROW(text_of(R"([{"type": "image"}])"), Error) << name;
    EXPECT_THROW(chat_template.render({{{"role", "assistant"}, {"tool_calls", {1}}}}, false, kNothing), Error) << name;
  }
}

TEST(BuiltInTemplates, AreListedInTheRefusal) {
  try {
    built_in_chat_template("nope", kNothing);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.parts().hint, HasSubstr("alpaca, chatml, llama3, plain"));
  }
}

}  // namespace
}  // namespace gputrain::chat
