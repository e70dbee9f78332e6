// From conversations in a file to a model that answers: data show, run, generate --chat, export.
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/byte_tokenizer.hpp"
#include "support/ports.hpp"
#include "support/program.hpp"
#include "support/rank_runs.hpp"

namespace gputrain::app {
namespace {

using namespace testing_support;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

constexpr int kStart = 256, kEnd = 257;  // <|im_start|>, <|im_end|>

struct ConversationTest : ::testing::Test {
  TemporaryFolder folder;

  void SetUp() override {
    fs::create_directories(folder / "tokenizer");
    folder.write("tokenizer/tokenizer.json", byte_tokenizer({"<|im_start|>", "<|im_end|>"}).dump());
    folder.write("tokenizer/tokenizer_config.json", json{{"eos_token", "<|im_end|>"}}.dump());
    std::string lines;
    for (int i = 0; i < 64; ++i) {
      const std::string letter(1, static_cast<char>('a' + i % 8));
      const json messages{{{"role", "user"}, {"content", "say " + letter}},
                          {{"role", "assistant"}, {"content", letter + letter}}};
      lines += json{{"messages", messages}}.dump() + "\n";
    }
    folder.write("train.jsonl", lines);
  }

  /// A small Llama on these conversations.
  std::string job(const std::string& text, const std::string& train) {
    return folder.write("job.yaml",
                        "schema: 1\n"
                        "model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 32, block_size: 64, "
                        "position: rotary, norm: rmsnorm, activation: swiglu}}\n"
                        "data: {train: {path: " +
                            (folder / "train.jsonl") + ", format: jsonl}, text: {" + text +
                            ", chat_template: chatml}}\n"
                            "train: " +
                            train + "\noptimizer: {type: adamw, lr: 1e-2}\n");
  }
  std::string published() const {
    return "tokenizer: published, tokenizer_path: " + (folder / "tokenizer") + ", packing: true, max_length: 64";
  }
};

/// A host in another time zone has another date.
TEST_F(ConversationTest, HasTheDateOfRankZeroOnEveryHost) {
  const std::string dated =
      folder.write("dated.jinja",
                   "{{- '<|im_start|>system\n' + strftime_now('%j') + '<|im_end|>\n' -}}{%- for m in messages -%}"
                   "{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}{%- endfor -%}");
  const std::vector<std::string> command{gputrain_path(),
                                         "run",
                                         job(published(), "{max_steps: 2, global_batch_size: 4}"),
                                         "--output-dir",
                                         folder / "run",
                                         "--set",
                                         "data.text.chat_template=" + dated};
  const std::string port = std::to_string(::gputrain::testing::free_port());
  RankPrograms programs;
  for (const char* rank : {"0", "1"}) {
    programs.push_back(std::make_unique<Program>(
        command, std::map<std::string, std::string>{{"RANK", rank},
                                                    {"LOCAL_RANK", "0"},
                                                    {"WORLD_SIZE", "2"},
                                                    {"LOCAL_WORLD_SIZE", "1"},
                                                    {"MASTER_ADDR", "127.0.0.1"},
                                                    {"MASTER_PORT", port},
                                                    *kFromDisk.begin(),
                                                    {"TZ", rank[0] == '0' ? "EARLY+12" : "LATE-13"}}));
  }
  const Result result = wait_for(programs);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("has other content")));
}

TEST_F(ConversationTest, IsShownWithWhatIsLearned) {
  const std::string path = job(published(), "{max_steps: 1}");
  const Result shown = gputrain({"data", "show", path, "--limit", "1"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("<|im_start|>user\nsay a<|im_end|>\n<|im_start|>assistant\n[[aa<|im_end|>]]"));
  const Result told = gputrain({"data", "show", path, "--limit", "1", "--json"});
  const json sample = json::parse(told.out);
  std::vector<int> learned;
  for (const json& target : sample["targets"])
    if (target != -100) learned.push_back(target.get<int>());
  EXPECT_THAT(learned, ::testing::ElementsAre('a', 'a', kEnd));
  EXPECT_EQ(sample["tokens"][0], kStart);
}

TEST_F(ConversationTest, IsAnsweredAfterTraining) {
  const std::string run = folder / "run";
  const Result trained =
      gputrain({"run", job(published(), "{max_steps: 150, global_batch_size: 4}"), "--output-dir", run});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out, AllOf(HasSubstr("packed into"), HasSubstr("generate " + run + " --chat")));
  EXPECT_TRUE(fs::exists(run + "/tokenizer.json"));
  fs::remove_all(folder / "tokenizer");  // the run folder has its own
  const std::string prompts = folder.write("p.jsonl", "{\"prompt\": \"say c\"}\n{\"prompt\": \"say f\"}\n");
  const Result answered = gputrain({"generate", run, "--chat", "--prompts", prompts, "--max-new-tokens", "8"});
  ASSERT_EQ(answered.exit_code, 0) << answered.err;
  EXPECT_EQ(answered.out, "cc\n---\nff\n");

  const std::string folder_out = folder / "hf";
  EXPECT_EQ(gputrain({"export", run, folder_out, "--format", "hf", "--dtype", "bf16"}).exit_code, 0);
  const Result again = gputrain({"generate", folder_out, "--prompt",
                                 "<|im_start|>user\nsay c<|im_end|>\n"
                                 "<|im_start|>assistant\n"});
  EXPECT_EQ(again.out, "cc\n") << again.err;
}

/// Lines of samples.jsonl without their times.
std::vector<json> samples_of(const std::string& run) {
  std::vector<json> samples;
  std::istringstream lines(read_file(run + "/samples.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    samples.push_back(json::parse(line));
    samples.back().erase("time");
  }
  return samples;
}

constexpr const char* kMessages =
    "eval: {sample: {messages: [say c, [{role: system, content: short}, {role: user, content: say f}]], temperature: "
    "0, "
    "max_new_tokens: 8, interval: 50}}\n";

TEST_F(ConversationTest, IsAnsweredWhileItIsLearned) {
  const std::string job_file = job(published(), "{max_steps: 150, global_batch_size: 4}"), run = folder / "run";
  folder.write("job.yaml", read_file(job_file) + kMessages + "checkpoint: {interval: 50}\nlog: {tensorboard: true}\n");
  const Result trained = gputrain({"run", job_file, "--output-dir", run});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out, AllOf(HasSubstr("\nsample  150  say c -> cc\n"), HasSubstr("\nsample  150  say f -> ")));
  const auto samples = samples_of(run);
  ASSERT_EQ(samples.size(), 6U);
  for (size_t i = 0; i < samples.size(); ++i) EXPECT_EQ(samples[i]["step"], 50 * (i / 2 + 1));
  EXPECT_EQ(samples[4]["prompt"], "say c");
  EXPECT_EQ(samples[4]["text"], "cc");
  EXPECT_EQ(samples[5]["name"], "sample/2");
  EXPECT_EQ(samples[5]["prompt"], "system: short\n\nuser: say f");
  EXPECT_THAT(read_file(run + "/report.html"), HasSubstr(R"("prompt":"say c","text":"cc","is_answer":true)"));

  // Resumed, and started again at the end.
  const std::string cut = folder / "cut";
  copy_without_the_end(run, cut);
  for (const char* state : {"killed", "done"}) {
    ASSERT_EQ(gputrain({"run", job_file, "--output-dir", cut}).exit_code, 0);
    EXPECT_EQ(samples_of(cut), samples) << state;
  }
  // Killed between the last checkpoint and the last answers.
  std::string lines = read_file(cut + "/samples.jsonl");
  for (int i = 0; i < 2; ++i) lines.resize(lines.rfind('\n', lines.size() - 2) + 1);
  folder.write("cut/samples.jsonl", lines);
  ASSERT_EQ(gputrain({"run", job_file, "--output-dir", cut}).exit_code, 0);
  EXPECT_EQ(samples_of(cut), samples);
}

TEST_F(ConversationTest, IsAnsweredAlikeByRanks) {
  const std::string file = job(published(), "{max_steps: 60, global_batch_size: 4}");
  folder.write("job.yaml", read_file(file) + kMessages + "precision: fp64\n");
  ASSERT_EQ(gputrain({"run", file, "--output-dir", folder / "one"}).exit_code, 0);
  const auto alone = samples_of(folder / "one");
  ASSERT_EQ(alone.size(), 4U);
  for (const std::string share : {"shard=none", "shard=parameters", "tensor=2", "context=2"}) {
    const Result two = ranks(2, file, folder / share, {"--set", "parallel." + share});
    ASSERT_EQ(two.exit_code, 0) << share << two.err;
    EXPECT_EQ(samples_of(folder / share), alone) << share;
  }
}

TEST_F(ConversationTest, IsRefusedWhereItCannotBeAnswered) {
  const std::string file = job("tokenizer: bytes", "{max_steps: 1, global_batch_size: 1}");
  const auto refusal = [&](const char* verb, const std::string& sample, const std::string& more) {
    const Result result = gputrain({verb, file, "--set", "eval.sample=" + sample, "--set", more});
    EXPECT_EQ(result.exit_code, 2) << sample;
    return result.err;
  };
  EXPECT_THAT(refusal("validate", "{messages: [hello]}", "data.text.chat_template=null"),
              HasSubstr("eval.sample.messages: needs a chat template"));
  const std::string none = "seed=0";
  EXPECT_THAT(refusal("validate", "{messages: [[{role: user, content: a}, {role: assistant, content: b}]]}", none),
              HasSubstr("conversation 1 ends with an answer"));
  EXPECT_THAT(refusal("validate", "{messages: [[]]}", none), HasSubstr("conversation 1 has no message"));
  EXPECT_THAT(refusal("validate", "{messages: [[{role: user}]]}", none), HasSubstr("content' is missing"));
  EXPECT_THAT(refusal("validate", "{prompt: []}", none), HasSubstr("there is no prompt"));
  const Result longer = gputrain(
      {"run", file, "--output-dir", folder / "run", "--set", "eval.sample={messages: [" + std::string(64, 'a') + "]}"});
  EXPECT_EQ(longer.exit_code, 2);
  EXPECT_THAT(longer.err, AllOf(HasSubstr("eval.sample.messages[0]"), HasSubstr("leaves no room for an answer")));
}

TEST_F(ConversationTest, NeedsATemplateToBeAnswered) {
  const std::string run = folder / "run";
  folder.write("train.jsonl", "{\"text\": \"abcdefgh\"}\n");
  std::string path = job("tokenizer: bytes", "{max_steps: 1, global_batch_size: 1}");
  ASSERT_EQ(gputrain({"run", path, "--output-dir", run, "--set", "data.text.chat_template=null"}).exit_code, 0);
  const Result asked = gputrain({"generate", run, "--chat", "--prompt", "hello"});
  EXPECT_EQ(asked.exit_code, 2);
  EXPECT_THAT(asked.err, AllOf(HasSubstr("no chat template"), Not(HasSubstr("bug"))));
}

}  // namespace
}  // namespace gputrain::app
