// `gputrain init`: what it says of data that it finds, and how the jobs fit.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/job_runs.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class InitFound : public JobRuns {
 protected:
  void SetUp() override {
    ::unsetenv("MODEL");
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  }

  template <class Make>
  std::string write(const std::string& name, int count, const Make& make) const {
    fs::create_directories((folder_.path() / name).parent_path());
    std::string lines;
    for (int i = 0; i < count; ++i) lines += make(i).dump() + "\n";
    return folder_.write(name, lines);
  }
  std::string write_conll(const std::string& name) const {
    fs::create_directories((folder_.path() / name).parent_path());
    std::string text = "-DOCSTART- -X- -X- O\n\n";
    for (int i = 0; i < 30; ++i) text += "Ada NNP B-NP B-PER\nsleeps VBZ B-VP O\n\n";
    return folder_.write(name, text);
  }
  Result init(const std::string& data, std::vector<std::string> more = {}) const {
    fs::remove(job_);
    more.insert(more.begin(), {"init", data, "--output", job_});
    return gputrain(more, kOneThread);
  }
  /// The job for data, which a dry run must accept.
  std::string job(const std::string& data, const std::vector<std::string>& more = {}) const {
    const Result result = init(data, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Result dry = run(job_, "run", {"--dry-run"});
    EXPECT_EQ(dry.exit_code, 0) << dry.err << read_file(job_);
    return read_file(job_);
  }
  /// A published encoder.
  std::string encoder() const {
    const std::string texts = write("texts.jsonl", 8, [](int i) {
      return json{{"text", "red house " + std::to_string(i % 2)}, {"label", i % 2}};
    });
    folder_.write("tokens/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\nhouse\n0\n1\n");
    folder_.write("tokens/tokenizer_config.json",
                  R"({"tokenizer_class": "BertTokenizer", "unk_token": "[UNK]", "sep_token": "[SEP]", )"
                  R"("pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"})");
    const std::string of_encoder = folder_.write(
        "encoder.yaml",
        "schema: 1\nmodel: {type: bert, config: {head: classifier, n_layer: 1, n_head: 2, n_embd: 16, n_inner: 32, "
        "block_size: 256}}\ndata: {train: {path: " +
            texts + ", format: jsonl}, text: {tokenizer: published, tokenizer_path: " + (folder_ / "tokens") +
            "}}\ntrain: {max_steps: 1, global_batch_size: 4}\noptimizer: {type: sgd, lr: 0.1}\n");
    EXPECT_EQ(run(of_encoder, "encoder-run").exit_code, 0);
    EXPECT_EQ(gputrain({"export", folder_ / "encoder-run", folder_ / "encoder", "--format", "hf"}).exit_code, 0);
    return folder_ / "encoder";
  }

  const std::string job_ = folder_ / "job.yaml";
};

TEST_F(InitFound, ReadsCoNLLFilesByTheirForm) {
  EXPECT_THAT(job(write_conll("names.txt")), AllOf(HasSubstr("format: conll"), HasSubstr("head: tagger")));
  for (const char* name : {"conll/train.txt", "conll/dev.txt", "conll/test.txt"}) write_conll(name);
  EXPECT_THAT(job(folder_ / "conll"), AllOf(HasSubstr("/conll/train.txt', format: conll}"),
                                            HasSubstr("val: {path: '" + (folder_ / "conll/dev.txt") + "'}"),
                                            HasSubstr("test: {path: '" + (folder_ / "conll/test.txt") + "'}")));
}

TEST_F(InitFound, EvaluatesATestFileOfARunThatHadNone) {
  for (const char* name : {"train", "test"})
    write(std::string("parts/") + name + ".jsonl", 40, [](int i) {
      return json{{"text", i % 2 == 0 ? "a red house" : "an old car"}, {"label", i % 2}};
    });
  EXPECT_THAT(job(folder_ / "parts"), HasSubstr("there is data for test and none for validation"));
  ASSERT_EQ(run(job_, "run", {"--set", "train.max_steps=1"}).exit_code, 0);
  const Result refused = gputrain({"eval", folder_ / "run", "--on", "test"}, kOneThread);
  EXPECT_THAT(refused.err, HasSubstr("--set data.test.path=FILE"));
  const Result tested =
      gputrain({"eval", folder_ / "run", "--on", "test", "--set", "data.test.path=" + (folder_ / "parts/test.jsonl")},
               kOneThread);
  EXPECT_EQ(tested.exit_code, 0) << tested.err;
}

TEST_F(InitFound, NumbersColumnsWithoutNamesAndSaysSo) {
  fs::create_directories(folder_ / "sst");
  for (const char* name : {"train", "dev"}) {
    std::string rows;
    for (int i = 0; i < 40; ++i) rows += "a film of many words\t" + std::to_string(i % 2) + "\n";
    folder_.write(std::string("sst/") + name + ".tsv", rows);
  }
  EXPECT_THAT(job(folder_ / "sst"),
              AllOf(HasSubstr("columns: {text: 0, label: 1}"), HasSubstr("# the first row is a record"),
                    HasSubstr("40 texts of 1 file"), HasSubstr("/sst/dev.tsv")));
  const Result unknown = init(folder_.write("odd.tsv", "a\tb\nc\td\ne\tf\n"));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("their columns are a, b, as the first row is taken for names"),
                                 HasSubstr("{text: 0, label: 1}")));
}

TEST_F(InitFound, ReadsTheShardsOfARoleAndTellsWhatItLeavesOut) {
  for (const char* name : {"data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl", "data/notes.jsonl"})
    write(name, 20, [](int i) { return json{{"text", "word " + std::to_string(i)}, {"label", i % 2}}; });
  EXPECT_THAT(job(folder_ / "data"), AllOf(HasSubstr("/data/train-0000*-of-00002.jsonl'"),
                                           HasSubstr("40 texts of 2 files"), HasSubstr("notes.jsonl is not read")));
  write("none/a.jsonl", 4, [](int i) { return json{{"text", std::to_string(i)}}; });
  write("none/b.jsonl", 4, [](int i) { return json{{"text", std::to_string(i)}}; });
  EXPECT_THAT(init(folder_ / "none").err, HasSubstr("no file says by its name that it is to be learned"));
}

TEST_F(InitFound, MakesPairsForAnEncoder) {
  const std::string base = encoder();
  const std::string pairs = write("pairs.jsonl", 40, [](int i) {
    return json{{"query", "red " + std::to_string(i)}, {"document", "house " + std::to_string(i)}};
  });
  const Result alone = init(pairs);
  EXPECT_THAT(alone.err,
              AllOf(HasSubstr("pairs of texts that are alike"), HasSubstr("text: 'query'"), HasSubstr("--model")));
  EXPECT_THAT(job(pairs, {"--model", base}),
              AllOf(HasSubstr("head: embedder"), HasSubstr("columns: {text: 'query', text_pair: 'document'}"),
                    HasSubstr("name: pairs-encoder"), HasSubstr("max_epochs: 10"), HasSubstr("global_batch_size: 8")));
  const Result trained = run(job_, "pairs-run", {"--set", "train.max_steps=1"});
  EXPECT_THAT(trained.out, HasSubstr(" embed " + (folder_ / "pairs-run"))) << trained.err;
  const std::string answers = write("answers.jsonl", 40, [](int i) {
    return json{{"question", "red " + std::to_string(i)}, {"answer", "house " + std::to_string(i)}};
  });
  EXPECT_THAT(job(answers, {"--model", base}), HasSubstr("columns: {text: 'question', text_pair: 'answer'}"));
  const std::string chats = write("chats.jsonl", 4, [](int) {
    return json{{"messages", {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "b"}}}}};
  });
  EXPECT_THAT(init(chats, {"--model", base}).err, AllOf(HasSubstr("need gpt"), HasSubstr("name a language model")));
}

TEST_F(InitFound, TakesASmallModelOfCharactersWithoutAGpuAndShowsItsTexts) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "to be or not to be, that is the question\n";
  EXPECT_THAT(job(folder_.write("play.txt", text)),
              AllOf(HasSubstr("n_layer: 4"), HasSubstr("global_batch_size: 12"), HasSubstr("there is no GPU here"),
                    HasSubstr("sample: {max_new_tokens: 300, interval: 10%}")));
  EXPECT_THAT(job(write("lines.jsonl", 40,
                        [](int i) {
                          return json{{"document", "to be " + std::to_string(i)}, {"author", "nobody"}};
                        })),
              AllOf(HasSubstr("not read: author"), HasSubstr("texts (text: 'document')")));
}

TEST_F(InitFound, SaysWhichVariableOfARecipeIsNotSet) {
  write("pairs.jsonl", 4, [](int i) { return json{{"anchor", std::to_string(i)}, {"positive", "b"}}; });
  ASSERT_EQ(gputrain({"init", "--recipe", "embed", "--output", job_}).exit_code, 0);
  const Result result = run(job_, "run");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("set the variable MODEL"));
}

}  // namespace
}  // namespace gputrain::testing_support
