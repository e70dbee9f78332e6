// Each file in tests/config/broken has its own mistake; next to it is the error page that a user sees. After a change
// of wording, run this test with GPUTRAIN_WRITE_PAGES=1 and read the diff.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "config/sample_job.hpp"
#include "gputrain/config/load.hpp"

namespace gputrain::config {
namespace {

namespace fs = std::filesystem;

fs::path broken_folder() { return fs::path(GPUTRAIN_SOURCE_DIR) / "tests/config/broken"; }

std::vector<fs::path> broken_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(broken_folder())) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().filename());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class BrokenFile : public testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    fs::current_path(broken_folder());  // so that the pages contain no path of this machine
  }
  void TearDown() override { fs::current_path(before_); }

 private:
  fs::path before_;
};

std::string page_beside(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_P(BrokenFile, IsRefusedWithItsExpectedPage) {
  const fs::path file = GetParam();
  const fs::path page = fs::path(file).replace_extension(".txt");
  const auto environment = [](const std::string&) { return std::nullopt; };
  try {
    load(schema_of<SampleJob>(), {.file = file, .environment = environment});
    FAIL() << "accepted";
  } catch (const SpecError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    if (std::getenv("GPUTRAIN_WRITE_PAGES") != nullptr) std::ofstream(page) << error.render(false) << "\n";
    EXPECT_EQ(error.render(false) + "\n", page_beside(page));
  }
}

INSTANTIATE_TEST_SUITE_P(Config, BrokenFile, testing::ValuesIn(broken_files()),
                         [](const auto& test) { return test.param.stem().string(); });

TEST(BrokenFiles, AreAtLeastTwenty) { EXPECT_GE(broken_files().size(), 20u); }

}  // namespace
}  // namespace gputrain::config
