#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/export/gguf_tokenizer.hpp"
#include "../../src/export/stored_type.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/export/export.hpp"
#include "support/python_reference.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ExportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* package : {"gguf", "transformers", "tokenizers"}) GPUTRAIN_NEED_REFERENCE(package);
    if (fs::exists(folder_)) return;
    fs::create_directories(folder_);
    ASSERT_TRUE(gputrain::testing::run_reference("export/export_reference.py", {"make", folder_}));
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  static const fs::path folder_;  // of the models, which all tests share
};

const fs::path ExportTest::folder_ = fs::temp_directory_path() / ("gputrain_export_" + std::to_string(::getpid()));

TEST_F(ExportTest, WritesWhatOthersReadBack) {
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const fs::path& folder = entry.path();
    const auto model = trained::open(trained::find({.folder = folder / "base"}));
    export_gguf(*model, folder / "f32.gguf", StoredType::f32);
    export_gguf(*model, folder / "q8_0.gguf", StoredType::q8_0);
    export_transformers(*model, folder / "hf", StoredType::f32, /*file_bytes=*/100'000);
  }
  EXPECT_TRUE(gputrain::testing::run_reference("export/export_reference.py", {"check", folder_}));
}

TEST_F(ExportTest, RefusesTokenizersThatGgufLacks) {
  const fs::path base = folder_ / "qwen3" / "copy";
  fs::copy(folder_ / "qwen3" / "base", base);
  const auto model = trained::open(trained::find({.folder = base}));
  std::ofstream(base / "tokenizer.json") << R"({"model": {"type": "WordPiece", "vocab": {}}})";
  try {
    export_gguf(*model, base / "out.gguf", StoredType::f16);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("WordPiece"));
  }
  EXPECT_FALSE(fs::exists(base / "out.gguf"));
}

std::string refusal_of(const std::function<void()>& store) {
  try {
    store();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "stored";
}

TEST(StoredType, RefusesNumbersThatAreTooLarge) {
  const at::Tensor values = at::full({1, 32}, 1e5);
  EXPECT_THAT(refusal_of([&] { converted("a.weight", values, StoredType::f16); }),
              AllOf(HasSubstr("'a.weight' holds values too large for f16"), HasSubstr("bf16, or f32")));
  EXPECT_EQ(refusal_of([&] { converted("a.weight", at::full({1}, 65504), StoredType::f16); }), "stored");
  EXPECT_EQ(refusal_of([&] { converted("a.weight", values, StoredType::bf16); }), "stored");
  EXPECT_THAT(refusal_of([&] { converted("a.weight", at::full({1}, 3.4e38), StoredType::bf16); }),
              HasSubstr("too large for bf16"));
  EXPECT_EQ(refusal_of([&] { q8_0_bytes("a.weight", values); }), "stored");
  EXPECT_THAT(refusal_of([&] {
                q8_0_bytes("a.weight", at::full({1, 32}, -9e6));
              }),
              HasSubstr("'a.weight' holds values too large for q8_0"));
}

class GgufTokenizer : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_gguf_" + std::to_string(::getpid()));
};

std::vector<std::pair<std::string, GgufValue>> values_of(const fs::path& folder) {
  trained::Model model{
      load_job({.file = {}, .set = {"model.type=mlp", "data.train.format=synthetic"}, .output_dir = {}})};
  model.tokenizer_folder = folder;
  model.vocabulary = 6;
  return gguf_tokenizer(model);
}

TEST_F(GgufTokenizer, IsReadFromVocabularyAndMerges) {
  const std::string vocabulary = R"({"a": 0, "b": 1, "ab": 2, "<s>": 3, "</s>": 4})";
  const std::string config = R"({"tokenizer_class": "GPT2Tokenizer", "eos_token": "</s>"})";
  write("old/vocab.json", vocabulary);
  write("old/merges.txt", "#version: 0.2\na b\n");
  write("old/tokenizer_config.json", config);
  write("new/tokenizer_config.json", config);
  write("new/tokenizer.json", R"({"model": {"type": "BPE", "merges": ["a b"], "vocab": )" + vocabulary +
                                  R"(}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
                                  "added_tokens": [{"id": 3, "content": "<s>", "special": true},
                                                   {"id": 4, "content": "</s>", "special": true}]})");
  EXPECT_EQ(values_of(folder_ / "old"), values_of(folder_ / "new"));
}

/// A field of bytes of protocol buffers.
std::string field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + std::string(1, static_cast<char>(bytes.size())) + bytes;
}

std::string piece(const std::string& text, float score, int kind) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return field(1, field(1, text) + "\x15" + bits + "\x18" + std::string(1, static_cast<char>(kind)));
}

TEST_F(GgufTokenizer, AddsASpaceWhereAPartOfItDoes) {
  const auto adds = [&](const std::string& parts) {
    write("tokenizer.json",
          R"({"model": {"type": "BPE", "byte_fallback": true, "merges": [], "vocab": {"a": 0}}, )" + parts + "}");
    const auto values = values_of(folder_);
    return std::ranges::find(values, std::pair(std::string("tokenizer.ggml.add_space_prefix"), GgufValue(true))) !=
           values.end();
  };
  EXPECT_FALSE(adds(R"("normalizer": null, "pre_tokenizer": null)"));
  EXPECT_TRUE(adds(R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Prepend"}]})"));
  const auto cut = [](const std::string& scheme) {
    return R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Metaspace", "prepend_scheme": ")" +
           scheme + "\"}]}";
  };
  EXPECT_TRUE(adds(cut("first")));
  EXPECT_FALSE(adds(cut("never")));
}

TEST_F(GgufTokenizer, IsReadFromSentencePieces) {
  const std::string pieces =
      piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("<0x0A>", 0, 6) + piece("a", -1, 1) + piece("x", 0, 4);
  write("tokenizer.model", pieces + field(2, "\x18\x02"));  // the trainer's kind: BPE
  const auto values = values_of(folder_);
  const auto value = [&](const std::string& key) {
    const auto found = std::ranges::find(values, "tokenizer.ggml." + key, [](const auto& one) { return one.first; });
    return found == values.end() ? GgufValue() : found->second;
  };
  EXPECT_EQ(value("model"), GgufValue(std::string("llama")));
  EXPECT_EQ(value("tokens"), GgufValue(std::vector<std::string>{"<unk>", "<s>", "<0x0A>", "a", "x", "[PAD5]"}));
  EXPECT_EQ(value("token_type"), GgufValue(std::vector<int32_t>{2, 3, 6, 1, 4, 5}));
  EXPECT_EQ(value("scores"), GgufValue(std::vector<float>{0, 0, 0, -1, 0, 0}));
  EXPECT_EQ(value("add_space_prefix"), GgufValue(true));
  write("tokenizer.model", pieces + field(2, "\x18\x01"));  // Unigram
  EXPECT_THAT(refusal_of([&] { values_of(folder_); }), HasSubstr("no BPE model"));
}

}  // namespace
}  // namespace gputrain::app
