#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "gputrain/export/export.hpp"
#include "support/python_reference.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
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
    const auto model = open_language_model({.folder = folder / "base"});
    export_gguf(*model, folder / "f32.gguf", StoredType::f32);
    export_gguf(*model, folder / "q8_0.gguf", StoredType::q8_0);
    export_transformers(*model, folder / "hf", StoredType::f32, /*file_bytes=*/100'000);
  }
  EXPECT_TRUE(gputrain::testing::run_reference("export/export_reference.py", {"check", folder_}));
}

TEST_F(ExportTest, RefusesTokenizersThatGgufLacks) {
  const fs::path base = folder_ / "qwen3" / "copy";
  fs::copy(folder_ / "qwen3" / "base", base);
  const auto model = open_language_model({.folder = base});
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

}  // namespace
}  // namespace gputrain::app
