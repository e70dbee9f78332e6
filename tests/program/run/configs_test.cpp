#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

TEST(ShippedConfigs, ValidateWithoutErrors) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GPUTRAIN_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    const Result result = gputrain({"validate", entry.path().string()});
    EXPECT_EQ(result.exit_code, 0) << entry.path() << "\n" << result.err;
  }
  EXPECT_GE(count, 5);
}

/// The most memory that a child of this process has had.
int64_t peak_kib() {
  rusage children{};
  ::getrusage(RUSAGE_CHILDREN, &children);
  return children.ru_maxrss;
}

/// As it stands, on the many sources here: the first thing that a new user runs.
TEST(ShippedConfigs, QuickstartRunsInLittleMemory) {
  const TemporaryFolder folder;
  const int64_t before = peak_kib(), most = int64_t{2} << 20;
  const Result result =
      gputrain({"run", GPUTRAIN_SOURCE_DIR "/configs/quickstart.yaml", "--output-dir", folder / "run", "--set",
                "data.train.path=" GPUTRAIN_SOURCE_DIR, "--set", "train.max_steps=2", "--set", "eval.max_tokens=1024"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LT(peak_kib(), std::max(before + 1, most));
}

}  // namespace
}  // namespace gputrain::testing_support
