// What a record says as one text, and what of it is learned: keys of the job, columns of the record.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../../src/records/tokens/learned_text.hpp"
#include "datasets/opened.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/taken_warnings.hpp"

namespace gputrain::records {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr const char* kTemplate =
    "{{ mood }}{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}"
    "<{{ m.role[0] }}>{{ m.content }};{% endfor %}{% if add_generation_prompt %}<a>{% endif %}";
constexpr const char* kTwo = R"("messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},)"
                             R"( {"role": "user", "content": "r"}, {"role": "model", "content": "b"}])";

/// Has no tokens: for templates without marks.
struct NoTokenizer final : tokenizers::Tokenizer {
  int64_t vocabulary_size() const override { return 0; }
  std::string decode(std::span<const int64_t>) const override { return {}; }
  void tokenize(std::string_view, const std::string&, const Take&, std::vector<ByteRange>*) const override {}
};

struct LearnedTextTest : datasets::FolderTest {
  data::TextOptions options;

  void SetUp() override {
    datasets::FolderTest::SetUp();
    write("t.jinja", kTemplate);
    options.chat_template = path("t.jinja");
  }

  LearnedText of(const std::string& record) const { return RecordTexts(options, {}).of(Json::parse(record)); }
  std::vector<std::string> learned(const std::string& record) const {
    const LearnedText text = of(record);
    std::vector<std::string> parts;
    for (const ByteRange& range : text.learned) parts.push_back(text.text.substr(range.begin, range.end - range.begin));
    return parts;
  }
  std::string refusal(const std::string& record) const {
    try {
      of(record);
    } catch (const Error& error) {
      return error.parts().what;
    }
    return "";
  }
};

TEST_F(LearnedTextTest, IsWhatTheJobAsksFor) {
  const std::string record = "{" + std::string(kTwo) + "}";
  EXPECT_THAT(learned(record), ElementsAre("a;", "b;"));
  options.loss_on = "completion";
  EXPECT_THAT(learned(record), ElementsAre("b;"));
  options.loss_on.reset();
  options.roles_to_train = {"user"};
  EXPECT_THAT(learned(record), ElementsAre("q;", "r;"));
  options.roles_to_train = {"user", "assistant"};
  EXPECT_THAT(learned(record), ElementsAre("q;", "a;", "r;", "b;"));
  options.roles_to_train.reset();
  options.train_on_eos = "none";
  EXPECT_THAT(learned(record), ElementsAre("a", "b"));
  options.train_on_eos = "last";
  EXPECT_THAT(learned(record), ElementsAre("a", "b;"));
}

TEST_F(LearnedTextTest, IsACompletionThatFollowsAConversation) {
  const std::string after_others =
      R"({"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}, {"role": "user",
                     "content": "r"}], "completion": [{"role": "assistant", "content": "b"}]})";
  const std::string several = R"({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant",
                     "content": "a"}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]})";
  for (const auto& loss_on : {std::optional<std::string>(), std::optional<std::string>("completion")}) {
    options.loss_on = loss_on;
    EXPECT_THAT(learned(after_others), ElementsAre("b;"));
    EXPECT_THAT(learned(several), ElementsAre("a;", "b;"));
  }
  options.loss_on = "assistant";
  EXPECT_THAT(learned(after_others), ElementsAre("a;", "b;"));
}

TEST_F(LearnedTextTest, ReadsListsOfMessagesInCellsOfTables) {
  const Json record{{"prompt", R"([{"role": "user", "content": "q"}])"},
                    {"completion", R"([{"role": "assistant", "content": "a"}])"}};
  EXPECT_EQ(of(record.dump()).text, "<u>q;<a>a;");
  EXPECT_THAT(learned(record.dump()), ElementsAre("a;"));
  EXPECT_THAT(refusal(R"({"prompt": "[{'role': 'user', 'content': 'q'}]", "completion": "a"})"),
              HasSubstr("as Python prints it"));
  EXPECT_EQ(of(R"({"prompt": "[1, 2] ", "completion": "a"})").text, "[1, 2] a");
}

TEST_F(LearnedTextTest, OfAllHasNoWishes) {
  options.loss_on = "all";
  const std::string wish = datasets::warning_of([&] {
    EXPECT_THAT(learned(R"({"messages": [{"role": "user", "content": "q", "weight": 0},
                                         {"role": "assistant", "content": "a"}]})"),
                ElementsAre("<u>q;<a>a;"));
  });
  EXPECT_THAT(wish, HasSubstr("learns every message, also those with weight 0"));
  options.roles_to_train = {"user"};
  EXPECT_THAT(refusal(R"({"text": "a"})"), HasSubstr("learns every message"));
}

/// Tables have a cell for each column, and JSON with one schema for all records has null.
TEST_F(LearnedTextTest, LeavesEmptyColumnsOut) {
  EXPECT_EQ(of(R"({"messages": "", "conversations": [], "text": "a"})").text, "a");
  EXPECT_EQ(of(R"({"messages": null, "instruction": "i", "output": null, "response": "o"})").text, "<u>i;<a>o;");
  EXPECT_EQ(of(R"({"instruction": "i", "output": "o", "history": "", "system": "", "tools": "", "documents": [],
                   "chat_template_kwargs": ""})")
                .text,
            "<u>i;<a>o;");
  EXPECT_THAT(refusal(R"({"messages": []})"), HasSubstr("not empty"));
}

TEST_F(LearnedTextTest, TakesRolesByTheNamesThatMessagesHave) {
  const std::string record = "{" + std::string(kTwo) + "}";
  for (const char* role : {"user", "human", "Prompter"}) {
    options.roles_to_train = {role};
    EXPECT_THAT(learned(record), ElementsAre("q;", "r;"));
  }
  options.roles_to_train = {"gpt", "observation"};
  EXPECT_THAT(learned(record), ElementsAre("a;", "b;"));
  options.roles_to_train = {"function_call"};
  EXPECT_THAT(refusal(record), HasSubstr("'function_call' is no role of its own"));
}

TEST_F(LearnedTextTest, TellsRolesThatNoMessageHas) {
  const auto told = [&](const std::vector<std::string>& roles) {
    options.roles_to_train = roles;
    const RecordTexts texts(options, {});
    log::TakenWarnings warnings;
    for (int i = 0; i < 2; ++i) texts.of(Json::parse("{" + std::string(kTwo) + "}"));
    for (int i = 0; i < 2; ++i) texts.check_marks(NoTokenizer());
    return warnings.take();
  };
  EXPECT_THAT(told({"assistant", "human"}), IsEmpty());
  EXPECT_THAT(told({"assistant", "observation", "humann"}),
              ElementsAre(HasSubstr("no message has the role 'observation' of data.text.roles_to_train"),
                          HasSubstr("no message has the role 'humann'")));
}

TEST_F(LearnedTextTest, HasTheVariablesOfJobAndRecord) {
  EXPECT_THAT(of("{" + std::string(kTwo) + R"(, "chat_template_kwargs": {"mood": "calm"}})").text,
              StartsWith("calm<u>"));
  EXPECT_THAT(of("{" + std::string(kTwo) + R"(, "chat_template_kwargs": "{\"mood\": \"calm\"}"})").text,
              StartsWith("calm<u>"));
  options.chat_template_kwargs = R"({"mood": "wild"})";
  EXPECT_THAT(of("{" + std::string(kTwo) + "}").text, StartsWith("wild<u>"));
  EXPECT_THAT(of("{" + std::string(kTwo) + R"(, "chat_template_kwargs": {"mood": "calm"}})").text,
              StartsWith("calm<u>"));
  options.chat_template_kwargs = "mood";
  EXPECT_THAT(refusal("{" + std::string(kTwo) + "}"),
              HasSubstr("'data.text.chat_template_kwargs' is neither an object"));
}

TEST_F(LearnedTextTest, HasToolsAsListsOrAsText) {
  const char* tools = R"([{"type": "function", "function": {"name": "f"}}])";
  EXPECT_THAT(of("{" + std::string(kTwo) + ", \"tools\": " + tools + "}").text, StartsWith("[f]<u>"));
  EXPECT_THAT(of("{" + std::string(kTwo) + ", \"tools\": " + Json(tools).dump() + "}").text, StartsWith("[f]<u>"));
  const std::string each = R"(["{\"type\": \"function\", \"function\": {\"name\": \"f\"}}"])";
  EXPECT_THAT(of("{" + std::string(kTwo) + ", \"tools\": " + each + "}").text, StartsWith("[f]<u>"));
  EXPECT_THAT(refusal("{" + std::string(kTwo) + R"(, "tools": "f"})"), HasSubstr("'tools' is neither a list"));
  EXPECT_THAT(refusal("{" + std::string(kTwo) + R"(, "tools": ["f"]})"), HasSubstr("'tools' is neither an object"));
}

TEST_F(LearnedTextTest, HasToolsByTheModelsOwnTemplate) {
  options.chat_template.reset();
  const auto turn = [](const std::string& begin) {
    return begin + "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}";
  };
  write("tokenizer_config.json",
        Json{{"chat_template",
              {{{"name", "default"}, {"template", turn("")}}, {{"name", "tool_use"}, {"template", turn("T")}}}}}
            .dump());
  const RecordTexts texts(options, fs::path(path("tokenizer_config.json")).parent_path());
  Json record = Json::parse("{" + std::string(kTwo) + "}");
  EXPECT_THAT(texts.of(record).text, StartsWith("<user>"));
  record["tools"] = Json::parse(R"([{"function": {"name": "f"}}])");
  EXPECT_THAT(texts.of(record).text, StartsWith("T<user>"));
}

TEST_F(LearnedTextTest, BeginsWithTheSystemColumn) {
  EXPECT_EQ(of("{\"system\": \"s\", " + std::string(kTwo) + "}").text, "<s>s;<u>q;<a>a;<u>r;<a>b;");
  EXPECT_EQ(of(R"({"system": "s", "prompt": [{"role": "user", "content": "q"}],
                   "completion": [{"role": "assistant", "content": "a"}]})")
                .text,
            "<s>s;<u>q;<a>a;");
  EXPECT_EQ(of(R"({"instruction": "i", "context": "c", "response": "o"})").text, "<u>i\nc;<a>o;");
}

}  // namespace
}  // namespace gputrain::records
