#include <gtest/gtest.h>

#include <filesystem>

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

}  // namespace
}  // namespace gputrain::testing_support
