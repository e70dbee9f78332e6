// `gputrain data tokenize`, and training on what it makes.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/program.hpp"

namespace gputrain::app {
namespace {

using namespace testing_support;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A folder with a tokenizer of a model: a b c ab, and <end>, which ends documents if `says_end`.
struct TokenizeTest : ::testing::Test {
  TemporaryFolder folder;
  const std::string output = folder / "out.bin";

  void write_tokenizer(int64_t end = 4, bool says_end = true) const {
    folder.write("model/tokenizer.json",
                 R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3}, "merges": ["a b"]},
                 "added_tokens": [{"content": "<end>", "special": true, "id": )" +
                     std::to_string(end) + "}]}");
    if (says_end) folder.write("model/tokenizer_config.json", R"({"eos_token": {"content": "<end>"}})");
  }

  Result tokenize(const std::vector<std::string>& files, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"data", "tokenize"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    arguments.insert(arguments.end(), {"--tokenizer", folder / "model", "--output", output});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return gputrain(arguments);
  }

  template <class Number>
  std::vector<Number> numbers() const {
    const std::string bytes = read_file(output);
    std::vector<Number> all(bytes.size() / sizeof(Number));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }
  std::vector<int32_t> header() const {
    const std::vector<int32_t> all = numbers<int32_t>();
    return {all.begin(), all.begin() + 3};
  }
  template <class Number>
  std::vector<Number> tokens() const {
    const std::vector<Number> all = numbers<Number>();
    return {all.begin() + 1024 / sizeof(Number), all.end()};
  }
};

TEST_F(TokenizeTest, MakesOneDocumentOfAFileOrALine) {
  write_tokenizer();
  const std::string text = folder.write("a.txt", "abc"),
                    lines = folder.write("b.jsonl", "{\"text\": \"ba\", \"id\": 1}\n\n{\"text\": \"cab\"}");
  const Result result = tokenize({text, lines});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(header(), ElementsAre(20240520, 1, 9));
  EXPECT_THAT(tokens<uint16_t>(), ElementsAre(3, 2, 4, 1, 0, 4, 2, 3, 4));
}

TEST_F(TokenizeTest, ReadsRecordsOfEveryKindByTheirTexts) {
  write_tokenizer();
  const std::string list = folder.write("a.json", "[{\"text\": \"ba\"},\n {\"text\": \"cab\"}]");
  const std::string table = folder.write("b.csv", "id,text\n1,c\n");
  const std::string lines = folder.write("lines.txt", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  ASSERT_EQ(std::system(("gzip -k '" + list + "'").c_str()), 0);
  const Result result = tokenize({list, table, lines, list + ".gz"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("lines.txt has JSON objects"), Not(HasSubstr("a.json"))));
  EXPECT_THAT(tokens<uint16_t>(), ElementsAre(1, 0, 4, 2, 3, 4, 2, 4, 0, 4, 1, 4, 1, 0, 4, 2, 3, 4));
}

TEST_F(TokenizeTest, WritesWideNumbersOfALargeVocabulary) {
  write_tokenizer(70000);
  ASSERT_EQ(tokenize({folder.write("a.txt", "ab")}).exit_code, 0);
  EXPECT_THAT(header(), ElementsAre(20240801, 7, 2));
  EXPECT_THAT(tokens<uint32_t>(), ElementsAre(3, 70000));
}

TEST_F(TokenizeTest, TakesTheGivenEndOrNone) {
  write_tokenizer(4, /*says_end=*/false);
  const std::string text = folder.write("a.txt", "ab");
  EXPECT_THAT(tokenize({text}).err, AllOf(HasSubstr("which token ends a document"), HasSubstr("--eos none")));
  EXPECT_EQ(tokenize({text}).exit_code, 2);
  EXPECT_THAT(tokenize({text}, {"--eos", "<stop>"}).err, HasSubstr("no token '<stop>'"));
  ASSERT_EQ(tokenize({text}, {"--eos", "c"}).exit_code, 0);
  EXPECT_THAT(tokens<uint16_t>(), ElementsAre(3, 2));
  ASSERT_EQ(tokenize({text}, {"--eos", "none"}).exit_code, 0);
  EXPECT_THAT(tokens<uint16_t>(), ElementsAre(3));
}

TEST_F(TokenizeTest, NamesWhatItCannotRead) {
  write_tokenizer();
  const auto error_of = [&](const std::string& name, const std::string& content) {
    const Result result = tokenize({folder.write(name, content)});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_NE(::access(output.c_str(), F_OK), 0) << "no output that looks complete";
    return result.err;
  };
  EXPECT_THAT(error_of("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\"\n"),
              AllOf(HasSubstr("a.jsonl:2: not JSON"), HasSubstr("column")));
  EXPECT_THAT(error_of("b.jsonl", "{\"content\": \"a\"}\n"), HasSubstr("no text under \"text\""));
  EXPECT_THAT(error_of("c.txt", "ab\nxyz"), HasSubstr("no token for a part of"));
  EXPECT_THAT(error_of("d.txt", "PK\x03\x04"), HasSubstr("a ZIP archive (.zip, .npz, PyTorch's .pt), not text"));
  EXPECT_EQ(tokenize({folder / "missing.txt"}).exit_code, 3);
}

TEST_F(TokenizeTest, MakesDataThatAJobReads) {
  write_tokenizer();
  std::string text;
  for (int i = 0; i < 500; ++i) text += i % 3 == 0 ? "ab" : "cb";
  const Result result = tokenize({folder.write("a.txt", text)});
  const size_t at = result.out.find("data: {train:");
  ASSERT_NE(at, std::string::npos) << result.out;
  const std::string data = result.out.substr(at, result.out.find('\n', at) - at);
  EXPECT_THAT(data, HasSubstr("vocab_size: 5"));
  const std::string job =
      folder.write("job.yaml", "schema: 1\nname: small\n" + data +
                                   "\nmodel: {type: gpt, config: {block_size: 8, n_layer: 1, n_head: 1, "
                                   "n_embd: 8}}\ntrain: {max_steps: 2, global_batch_size: 2}\n");
  const Result run = gputrain({"run", job, "--output-dir", folder / "run"});
  EXPECT_EQ(run.exit_code, 0) << run.err << run.out;
  EXPECT_THAT(run.err, Not(HasSubstr("warning")));
}

/// Published weights often know more tokens than their tokenizer, which is no reason to warn.
TEST_F(TokenizeTest, FitsWeightsWithAPaddedVocabulary) {
  write_tokenizer();
  std::string text;
  for (int i = 0; i < 100; ++i) text += "abc";
  const std::string job = folder.write(
      "job.yaml",
      "schema: 1\nname: small\ndata: {train: {path: " + folder.write("a.txt", text) +
          ", format: text}, text: {tokenizer: published, tokenizer_path: " + (folder / "model") +
          ", max_length: 8}}\nmodel: {type: gpt, config: {n_layer: 1, n_head: 1, n_embd: 8, vocab_size: 8}}\n"
          "train: {max_steps: 1, global_batch_size: 2}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "first"}).exit_code, 0);
  const Result next =
      gputrain({"run", job, "--output-dir", folder / "next", "--set", "model.pretrained=" + folder / "first"});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_THAT(next.err, Not(HasSubstr("knows 8 tokens")));
}

}  // namespace
}  // namespace gputrain::app
