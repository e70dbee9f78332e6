#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../../src/records/formats/record_file.hpp"
#include "datasets/opened.hpp"
#include "datasets/sample_of.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/batch.hpp"
#include "support/python_reference.hpp"

namespace gputrain::records {
using namespace datasets;
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Files that pyarrow wrote, each with the rows that it has.
class ParquetTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    GPUTRAIN_NEED_REFERENCE("pyarrow");
    static const std::string written = written_by_reference();  // once, for all tests
    ASSERT_FALSE(written.empty());
    fs::copy(written, folder_, fs::copy_options::recursive);
  }
  static void TearDownTestSuite() { fs::remove_all(reference_folder()); }

  static fs::path reference_folder() {
    return fs::path(::testing::TempDir()) / ("gputrain_parquet_" + std::to_string(::getpid()));
  }
  static std::string written_by_reference() {
    fs::create_directories(reference_folder());
    const std::string folder = reference_folder().string();
    return gputrain::testing::run_reference("records/parquet_reference.py", {folder}) ? folder : "";
  }
  static std::vector<Record> records_of(const std::string& path) {
    int64_t bytes_left = 1 << 20;
    return records_of_parquet(
        {.path = path,
         .columns = {"text", "messages", "instruction", "input", "output", "system", "tools", "documents"}},
        bytes_left);
  }
  std::vector<Record> records(const std::string& name) const { return records_of(path(name + ".parquet")); }
  std::string refusal(const std::string& name) const {
    return error_of([&] { records(name); });
  }
  ordered_json expected(const std::string& name) const {
    std::ifstream file(path(name + ".expected"));
    return ordered_json::parse(file);
  }
  std::string bytes_of(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  data::DatasetSplits open_shards(const std::string& file, const std::string& format) const {
    return open("{train: {path: \"" + path(file) + "\", format: " + format +
                    "}, text: {tokenizer: bytes, chat_template: chatml}}",
                256);
  }
};

TEST_F(ParquetTest, ReadsTheRowsThatPyarrowWrote) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().extension() != ".expected" || entry.path().stem() == "other_columns") continue;
    SCOPED_TRACE(entry.path().stem());
    const ordered_json rows = expected(entry.path().stem());
    const std::vector<Record> read = records(entry.path().stem());
    ASSERT_EQ(read.size(), rows.size());
    for (size_t i = 0; i < read.size() && !HasFailure(); ++i) {
      EXPECT_EQ(read[i].value.dump(), rows[i].dump());  // the order of fields too
      EXPECT_EQ(read[i].problem, "");
    }
    ++files;
  }
  EXPECT_EQ(files, 9);
}

TEST_F(ParquetTest, CountsRowsOverRowGroups) {
  const auto read = records("snappy");
  EXPECT_EQ(read.front().place, path("snappy.parquet") + " row 1");
  EXPECT_EQ(read.back().place, path("snappy.parquet") + " row 3000");
}

TEST_F(ParquetTest, GivesTheSamplesOfJsonLines) {
  std::string lines;
  for (const char* shard : {"shards/a", "shards/b"})
    for (const ordered_json& row : expected(shard)) lines += row.dump() + "\n";
  write("job.jsonl", lines);
  const auto by_lines = open_shards("job.jsonl", "jsonl");
  for (const char* files : {"shards", "shards/*.parquet", "shards/{a,b}.parquet"}) {
    const auto by_rows = open_shards(files, "parquet");
    ASSERT_EQ(by_rows.train->size(), by_lines.train->size());
    for (int64_t i = 0; i < by_lines.train->size() && !HasFailure(); ++i)
      EXPECT_EQ(read_fields(*by_rows.train, i), read_fields(*by_lines.train, i));
    EXPECT_EQ(by_rows.train->content_hash(), by_lines.train->content_hash());
  }
  EXPECT_EQ(by_lines.train->size(), 300);
}

TEST_F(ParquetTest, ReadsColumnsOfOtherNames) {
  const auto data = open("{train: {path: " + path("other_columns.parquet") +
                             ", format: parquet}, text: {tokenizer: bytes, columns: {prompt: question, completion: "
                             "answer}}}",
                         64);
  EXPECT_THAT(read_fields(*data.train, 0).tokens, ::testing::ElementsAre('a', 'b'));
}

TEST_F(ParquetTest, NamesTheColumnsOfFilesWithoutOurs) {
  EXPECT_THAT(refusal("other_columns"), AllOf(HasSubstr("there are question, answer"), HasSubstr("data.text.columns"),
                                              HasSubstr("other_columns")));
}

TEST_F(ParquetTest, HasImagesInItsRows) {
  const auto images = [&](const std::string& name) {
    const config::Loaded job =
        config::load(config::schema_of<JobWithData>(),
                     {.file = "job.yaml", .text = "data: {train: {path: " + path(name) + ", format: parquet}}"});
    return data::open_datasets(job.as<JobWithData>().data, {.field = kImage, .target = Target::label}, {}).train;
  };
  const auto data = images("images.parquet");
  EXPECT_EQ(data->describe(), "3 images 4x4x3, 2 classes");
  EXPECT_THAT(sample_of(*data, 0).at("target"), ::testing::ElementsAre(1));
  EXPECT_EQ(sample_of(*data, 0).at("image")[0], 10);
  EXPECT_EQ(sample_of(*data, 1).at("image")[0], 20);
  EXPECT_EQ(sample_of(*data, 2).at("image")[0], 30);
  EXPECT_EQ(sample_of(*images("bytes.parquet"), 1).at("image")[0], 50);
  EXPECT_NE(data->content_hash(), images("bytes.parquet")->content_hash());
}

TEST_F(ParquetTest, KeepsPlacesOfTextThatIsNotUtf8) {
  const auto read = records("not_utf8");
  ASSERT_EQ(read.size(), 3U);
  EXPECT_EQ(read[0].problem + read[2].problem, "");
  EXPECT_EQ(read[1].problem, "'text' is not UTF-8");
  EXPECT_THAT(read[1].place, HasSubstr("row 2"));
}

TEST_F(ParquetTest, RefusesFilesOfOtherKinds) {
  write("text.parquet", "{\"text\": \"a\"}\n");
  write("zip.parquet", "PK\3\4" + std::string(100, 'x'));
  write("empty.parquet", "");
  EXPECT_THAT(refusal("text"), AllOf(HasSubstr("text, not a Parquet file"), HasSubstr("text.parquet")));
  EXPECT_THAT(refusal("zip"), HasSubstr("a ZIP archive (.zip, .npz, PyTorch's .pt), not a Parquet file"));
  EXPECT_THAT(refusal("empty"), HasSubstr("the file is empty"));
  EXPECT_THAT(refusal("absent"), HasSubstr("absent.parquet"));
}

TEST_F(ParquetTest, RefusesWhatIsCutOffOrBroken) {
  const std::string whole = bytes_of("zstd.parquet");
  for (const size_t length : {4UL, 9UL, whole.size() / 2, whole.size() - 1}) {
    write("cut.parquet", whole.substr(0, length));
    EXPECT_THAT(refusal("cut"), AllOf(HasSubstr("cut off"), HasSubstr("cut.parquet"))) << length;
  }
  write("cut.parquet", whole.substr(0, 2000) + whole.substr(2500));
  EXPECT_THAT(refusal("cut"), HasSubstr("cannot be read"));
  std::string broken = whole;
  broken[200] = static_cast<char>(broken[200] ^ 1);  // in a page, which has a checksum
  write("broken.parquet", broken);
  EXPECT_THAT(refusal("broken"), AllOf(HasSubstr("cannot be read"), HasSubstr("broken.parquet")));
}

TEST_F(ParquetTest, SurvivesFlippedBytes) {
  const std::string whole = bytes_of("gzip_brotli_lz4.parquet");
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string broken = whole;
    const size_t place = random() % whole.size();
    broken[place] = static_cast<char>(random());
    const std::string file = write("broken.parquet", broken);
    refused += error_of([&] { records_of(file); }).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
}

TEST_F(ParquetTest, TakesTextFromItsBudget) {
  int64_t bytes_left = 1000;
  const RecordFile file{.path = path("snappy.parquet"), .columns = {"text"}};
  EXPECT_THAT(error_of([&] { records_of_parquet(file, bytes_left); }), HasSubstr("more than 16 GiB"));
}

TEST_F(ParquetTest, RefusesJobsWithoutARow) {
  EXPECT_THAT(error_of([&] { open_shards("no_rows.parquet", "parquet"); }), HasSubstr("there is no record"));
}

}  // namespace
}  // namespace gputrain::records
