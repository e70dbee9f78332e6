// `gputrain generate` on run folders and on folders of published models.
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/byte_tokenizer.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::app {
namespace {

using namespace testing_support;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

const std::string kOneStep = "{max_steps: 1, global_batch_size: 8}";

struct GenerateTest : ::testing::Test {
  TemporaryFolder folder;
  const std::string run = folder / "run";

  Result train(const std::string& job) const { return gputrain({"run", job, "--output-dir", run}); }

  Result generate(const std::string& from, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"generate", from};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return gputrain(arguments);
  }
};

/// Weights that the run has trained whole replace those that it began with.
TEST_F(GenerateTest, NeedsNeitherDataNorBaseOfARun) {
  std::filesystem::create_directories(folder.path() / "tokenizer");
  folder.write("tokenizer/tokenizer.json", byte_tokenizer({"<end>"}).dump());
  std::string lines;
  for (int i = 0; i < 16; ++i)
    lines += json{{"text", "a text of some words, number " + std::to_string(i)}}.dump() + "\n";
  const std::string data = folder.write("texts.jsonl", lines), base = folder / "base", aside = folder / "aside.jsonl";
  const std::string job = folder.write(
      "job.yaml",
      "schema: 1\ndevice: cpu\nmodel: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 16, position: "
      "rotary, norm: rmsnorm, activation: swiglu}}\ndata: {train: {path: " +
          data + ", format: jsonl}, text: {tokenizer: published, tokenizer_path: " + (folder / "tokenizer") +
          ", max_length: 48}}\noptimizer: {type: adamw, lr: 0.01}\ntrain: {max_steps: 3, "
          "global_batch_size: 4}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", base}).exit_code, 0);
  const Result trained = gputrain({"run", job, "--output-dir", run, "--set", "model.pretrained=" + base});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::vector<std::string> more{"--prompt", "a text", "--max-new-tokens", "20"};
  const Result whole = generate(run, more);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto expect_the_same = [&](const std::string& what) {
    const Result now = generate(run, more);
    EXPECT_EQ(now.exit_code, 0) << what << now.err;
    EXPECT_EQ(now.out, whole.out) << what;
  };
  const std::string adapted = folder / "adapted";
  const Result lora =
      gputrain({"run", job, "--output-dir", adapted, "--set", "model.pretrained=" + base, "--set",
                "model.adapter.type=lora", "--set", "model.adapter.rank=2", "--set", "model.adapter.alpha=4"});
  ASSERT_EQ(lora.exit_code, 0) << lora.err;
  const Result with_adapter = generate(adapted, more);
  EXPECT_EQ(with_adapter.exit_code, 0) << with_adapter.err;
  std::filesystem::rename(data, aside);
  EXPECT_EQ(generate(adapted, more).out, with_adapter.out);
  std::filesystem::remove(adapted + "/model.json");
  EXPECT_EQ(generate(adapted, more).out, with_adapter.out);
  std::filesystem::remove_all(base);
  expect_the_same("without data and base");
  std::filesystem::rename(folder / "run/model.json", folder / "model.json");
  expect_the_same("as a run of a version without model.json");
  std::filesystem::rename(folder / "model.json", folder / "run/model.json");
  std::filesystem::remove(folder / "run/model.safetensors");
  std::filesystem::remove(folder / "run/config.json");
  expect_the_same("before its end");
  std::filesystem::remove(folder / "run/model.json");
  expect_the_same("before its end, of a version without model.json");
}

TEST_F(GenerateTest, ContinuesPromptsWithRun) {
  const Result trained = train(write_gpt_job(folder, "", kOneStep));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::string prompts =
      folder.write("p.jsonl", "{\"prompt\": \"ts\"}\n{\"prompt\": \"t\"}\n{\"prompt\": \"s\"}\n");
  const Result all = generate(run, {"--prompts", prompts, "--json", "--max-new-tokens", "9", "--batch-size", "2"});
  ASSERT_EQ(all.exit_code, 0) << all.err;
  const auto lines = lines_of(all.out);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[0]["prompt_tokens"], SizeIs(2));
  for (const json& line : lines) {
    EXPECT_THAT(line["tokens"], SizeIs(9));
    EXPECT_THAT(line["text"].get<std::string>(), SizeIs(9));
    EXPECT_EQ(line["finish"], "length");
  }
  const Result one = generate(run, {"--prompt", "t", "--max-new-tokens", "9"});
  EXPECT_EQ(one.out, lines[1]["text"].get<std::string>() + "\n");
  EXPECT_THAT(one.err, HasSubstr("9 tokens after 1 token in"));
}

TEST_F(GenerateTest, TakesNewestCheckpointBeforeTheEnd) {
  const Result trained = train(write_gpt_job(folder, "checkpoint: {interval: 10}\n"));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::vector<std::string> drawn{"--prompt", "a", "--max-new-tokens", "12", "--temperature", "1", "--seed", "3"};
  const Result whole = generate(run, drawn);
  std::filesystem::remove(run + "/model.safetensors");
  EXPECT_EQ(generate(run, drawn).out, whole.out);
  std::filesystem::remove_all(run + "/ckpt");
  const Result none = generate(run, drawn);
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.err, HasSubstr("there are no trained weights"));
}

TEST_F(GenerateTest, EndsWhereModelReadsNoMore) {
  const Result trained = train(write_gpt_job(folder, "", kOneStep));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Result result = generate(run, {"--prompt", "ts", "--json"});
  EXPECT_THAT(lines_of(result.out).at(0)["tokens"], SizeIs(14));  // of 16
  EXPECT_THAT(result.err, HasSubstr("the model reads no more than 16 tokens"));
  const Result full = generate(run, {"--prompt", "tstststststststs"});
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_THAT(full.err, HasSubstr("leaves no room"));
}

TEST_F(GenerateTest, ReadsFolderOfPublishedModel) {
  folder.write("model/tokenizer.json",
               R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3}, "merges": ["a b"]},
               "added_tokens": [{"content": "<end>", "special": true, "id": 4}]})");
  std::string text;
  for (int i = 0; i < 300; ++i) text += "abcab";
  const std::string data = "data: {train: {path: " + folder.write("a.txt", text) +
                           ", format: text}, text: {tokenizer: published, tokenizer_path: " + (folder / "model") +
                           "}}\n";
  const std::string job = folder.write(
      "job.yaml",
      "schema: 1\nname: small\n" + data +
          "model: {type: gpt, config: {block_size: 32, n_layer: 1, n_head: 2, n_embd: 16, position: rotary, "
          "norm: rmsnorm, activation: swiglu}}\ntrain: {max_steps: 30, global_batch_size: 4}\n"
          "optimizer: {type: adamw, lr: 0.02}\n");
  const Result trained = train(job);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  std::filesystem::remove(folder / "a.txt");  // the tokenizer does not need the data
  const std::vector<std::string> prompt{"--prompt", "ab<end>c", "--max-new-tokens", "6", "--json"};
  const Result of_run = generate(run, prompt);
  ASSERT_EQ(of_run.exit_code, 0) << of_run.err;
  const json line = lines_of(of_run.out).at(0);
  EXPECT_EQ(line["prompt_tokens"], json({3, 4, 2}));
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(run + "/" + file, folder / "model/" + file);
  EXPECT_EQ(generate(folder / "model", prompt).out, of_run.out);
  folder.write("model/generation_config.json", "{\"eos_token_id\": [" + line["tokens"][2].dump() + "]}");
  const json ended = lines_of(generate(folder / "model", prompt).out).at(0);
  EXPECT_EQ(ended["finish"], "stop");
  EXPECT_LE(ended["tokens"].size(), 3U);
  const Result foreign = generate(
      run,
      {"--prompt", "a", "--tokenizer",
       folder.write("model/big/tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 9}, "merges": []}})")});
  EXPECT_EQ(foreign.exit_code, 3);
  EXPECT_THAT(foreign.err, AllOf(HasSubstr("token 9"), HasSubstr("the model knows 5 tokens")));
}

TEST_F(GenerateTest, ReadsPromptsOfAnyLineEnds) {
  const Result trained = train(write_gpt_job(folder, "", kOneStep));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto answers = [&](const std::string& name, const std::string& content) {
    return generate(run, {"--prompts", folder.write(name, content), "--json", "--max-new-tokens", "2"});
  };
  const std::string plain = answers("p.txt", "ts\ns\n").out;
  EXPECT_THAT(lines_of(plain), SizeIs(2));
  EXPECT_EQ(answers("p.txt", "ts\r\ns\r\n").out, plain);
  EXPECT_EQ(answers("p.txt", "\xEF\xBB\xBFts\r\ns").out, plain);
  EXPECT_EQ(answers("p.jsonl", "{\"prompt\": \"ts\"}\r\n\r\n{\"prompt\": \"s\"}\r\n").out, plain);
  const Result gap = answers("p.txt", "ts\n\r\n\ns\n\n");
  EXPECT_EQ(gap.out, plain);
  EXPECT_THAT(gap.err, HasSubstr("3 empty lines passed over"));
  Program typed(
      {"sh", "-c",
       "printf 'ts\\r\\n\\r\\ns\\r\\n' | '" + gputrain_path() + "' generate '" + run + "' --json --max-new-tokens 2"});
  EXPECT_EQ(typed.wait().out, plain);
}

TEST_F(GenerateTest, ChecksAllPromptsBeforeTheFirstAnswer) {
  const Result trained = train(write_gpt_job(folder, "", kOneStep));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto refused = [&](const std::string& last) {
    const Result result =
        generate(run, {"--prompts", folder.write("p.jsonl", "{\"prompt\": \"ts\"}\n{\"prompt\": \"" + last + "\"}\n"),
                       "--batch-size", "1", "--max-new-tokens", "2"});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("p.jsonl:2"));
    return result.err;
  };
  EXPECT_THAT(refused(""), HasSubstr("the prompt is empty"));
  EXPECT_THAT(refused("tstststststststs"), HasSubstr("leaves no room"));
  EXPECT_THAT(refused("#"), HasSubstr("#"));  // no token of this vocabulary
}

TEST_F(GenerateTest, EndsBeforeStops) {
  folder.write("model/tokenizer.json", byte_tokenizer({"<end>", "<turn>"}).dump());
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abcd<turn>";
  const std::string job = folder.write(
      "job.yaml", "schema: 1\ndata: {train: {path: " + folder.write("a.txt", text) +
                      ", format: text}, text: {tokenizer: published, tokenizer_path: " + (folder / "model") +
                      "}}\nmodel: {type: gpt, config: {block_size: 32, n_layer: 1, n_head: 2, n_embd: 16, position: "
                      "rotary, norm: rmsnorm, activation: swiglu}}\ntrain: {max_steps: 60, global_batch_size: 4}\n"
                      "optimizer: {type: adamw, lr: 0.02}\n");
  const Result trained = train(job);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto answer = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--prompt", "a", "--max-new-tokens", "9"});
    return generate(run, more);
  };
  EXPECT_EQ(answer({}).out, "bcdabcd\n");
  EXPECT_EQ(answer({"--stop", "da"}).out, "bc\n");
  EXPECT_EQ(answer({"--stop", "dx", "--stop", "cda"}).out, "b\n");
  EXPECT_EQ(answer({"--stop", "dab"}).out, "bc\n");  // across a token that is not shown
  EXPECT_EQ(answer({"--stop", "<turn>"}).out, "bcd\n");
  const json line = lines_of(answer({"--stop", "c", "--json"}).out).at(0);
  EXPECT_EQ(line["text"], "b");
  EXPECT_EQ(line["tokens"], json({'b', 'c'}));
  EXPECT_EQ(line["finish"], "stop");
  const Result mixed = answer({"--stop", "d<turn>"});
  EXPECT_EQ(mixed.exit_code, 2);
  EXPECT_THAT(mixed.err, HasSubstr("--stop '<|im_end|>'"));
}

TEST_F(GenerateTest, SaysWhatIsWrong) {
  const auto error_of = [&](const std::string& from, const std::vector<std::string>& more, int code) {
    const Result result = generate(from, more);
    EXPECT_EQ(result.exit_code, code) << result.out;
    return result.err;
  };
  EXPECT_THAT(error_of(folder / "none", {"--prompt", "a"}, 2), HasSubstr("neither a run folder nor a model's"));
  const Result trained = train(write_gpt_job(folder, "", kOneStep));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(error_of(run, {"--prompt", "a", "--top-k", "3"}, 2), HasSubstr("--temperature 1"));
  EXPECT_THAT(error_of(run, {"--prompts", folder.write("p.jsonl", "{\"text\": \"a\"}\n")}, 3), HasSubstr("p.jsonl:1"));
  EXPECT_THAT(error_of(run, {"--prompts", folder / "missing"}, 3), HasSubstr("cannot open"));
  EXPECT_THAT(error_of(run, {"--prompt", ""}, 2), HasSubstr("the prompt is empty"));
  for (const char* option : {"--temperature", "--top-p", "--min-p", "--repetition-penalty"})
    EXPECT_THAT(error_of(run, {"--prompt", "a", option, "nan"}, 2), HasSubstr("'nan' is not a number")) << option;
}

}  // namespace
}  // namespace gputrain::app
