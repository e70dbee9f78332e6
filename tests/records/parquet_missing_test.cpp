// A build without Arrow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/records/formats/record_file.hpp"
#include "datasets/opened.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::records {
using namespace datasets;
namespace {

class ParquetMissing : public FolderTest {};

TEST_F(ParquetMissing, SaysWhatToInstall) {
  const std::string file = write("a.parquet", "PAR1");
  const auto read = [&] { open("{train: {path: " + file + ", format: parquet}, text: {tokenizer: bytes}}", 64); };
  EXPECT_THAT(error_of(read, ExitCode::environment), ::testing::HasSubstr("./scripts/setup.sh --parquet"));
}

}  // namespace
}  // namespace gputrain::records
