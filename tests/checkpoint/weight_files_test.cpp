#include "gputrain/checkpoint/weight_files.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "../../src/checkpoint/not_weights.hpp"
#include "support/python_reference.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A folder with tensors a (1) and b (2) in one shard and c (3) in another.
class WeightFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    write_safetensors(folder_ / "1.safetensors", {{"a", at::full({2}, 1)}, {"b", at::full({3}, 2)}});
    write_safetensors(folder_ / "2.safetensors", {{"c", at::full({1}, 3)}});
    write_index({{"a", "1.safetensors"}, {"b", "1.safetensors"}, {"c", "2.safetensors"}});
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write_index(const nlohmann::json& files) const {
    write("model.safetensors.index.json",
          nlohmann::json{{"metadata", {{"total_size", 24}}}, {"weight_map", files}}.dump());
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

  std::string refusal(const fs::path& path) const {
    try {
      const WeightFiles files(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      return error.what();
    }
    return "accepted";
  }

  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_weight_files_" + std::to_string(::getpid()));
};

TEST_F(WeightFilesTest, ReadsShardsByTheirIndex) {
  const WeightFiles files(folder_);
  EXPECT_THAT(files.names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(files.tensor("b").sum().item<double>(), 6);
  EXPECT_EQ(files.tensor("c").item<double>(), 3);
  EXPECT_EQ(files.file_of("c"), folder_ / "2.safetensors");
  EXPECT_EQ(files.path(), folder_ / "model.safetensors.index.json");
}

TEST_F(WeightFilesTest, LeavesOutTensorsTheIndexDoesNotName) {
  write_index({{"a", "1.safetensors"}});
  EXPECT_THAT(WeightFiles(folder_).names(), ElementsAre("a"));
}

TEST_F(WeightFilesTest, PrefersOneWholeFile) {
  write_safetensors(folder_ / "model.safetensors", {{"whole", at::full({1}, 7)}}, {{"told", "yes"}});
  const WeightFiles files(folder_);
  EXPECT_THAT(files.names(), ElementsAre("whole"));
  EXPECT_EQ(files.metadata().at("told"), "yes");
}

TEST_F(WeightFilesTest, NamesMissingShards) {
  fs::remove(folder_ / "2.safetensors");
  EXPECT_THAT(refusal(folder_), AllOf(HasSubstr("index.json: of its 2 files with weights 2.safetensors is missing"),
                                      HasSubstr("gputrain fetch")));
  fs::remove(folder_ / "1.safetensors");
  EXPECT_THAT(refusal(folder_), HasSubstr("1.safetensors and 1 more are missing"));
}

TEST_F(WeightFilesTest, NamesTensorThatIsElsewhere) {
  write_index({{"a", "1.safetensors"}, {"b", "2.safetensors"}});
  EXPECT_THAT(refusal(folder_),
              HasSubstr("2.safetensors: tensor 'b' is not in it, though model.safetensors.index.json"));
}

TEST_F(WeightFilesTest, RefusesIndexThatNamesNoFileBesideIt) {
  for (const nlohmann::json& file : {nlohmann::json("../1.safetensors"), nlohmann::json("/etc/passwd"),
                                     nlohmann::json(".."), nlohmann::json(""), nlohmann::json(7)}) {
    write_index({{"a", file}});
    EXPECT_THAT(refusal(folder_), AllOf(HasSubstr("no file beside it for tensor 'a'"), HasSubstr(file.dump())));
  }
  write("model.safetensors.index.json", "{}");
  EXPECT_THAT(refusal(folder_), HasSubstr("'weight_map' is missing"));
}

TEST_F(WeightFilesTest, RefusesAnIndexWithoutLimits) {
  write("model.safetensors.index.json",
        R"({"weight_map":{"a":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}}");
  EXPECT_THAT(refusal(folder_), HasSubstr("too deep"));
  fs::resize_file(folder_ / "model.safetensors.index.json", (uintmax_t{64} << 20) + 1);
  EXPECT_THAT(refusal(folder_), HasSubstr("more than 64 MiB"));
}

TEST_F(WeightFilesTest, SaysWhatAnIndexIsInstead) {
  write("model.safetensors.index.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  EXPECT_THAT(refusal(folder_), HasSubstr("not a JSON object but a Git LFS pointer"));
}

TEST_F(WeightFilesTest, PointsToWeightsOfAnotherName) {
  fs::remove(folder_ / "model.safetensors.index.json");
  fs::remove(folder_ / "2.safetensors");
  EXPECT_THAT(refusal(folder_), HasSubstr("for instance " + (folder_ / "1.safetensors").string()));
}

TEST_F(WeightFilesTest, AdvisesWhatGivesAFolderItsWeights) {
  const fs::path converted = folder_ / "converted",
                 fetched = folder_ / "models--org--model/snapshots" / std::string(40, 'a');
  fs::create_directories(converted);
  fs::create_directories(fetched);
  EXPECT_THAT(refusal(converted), HasSubstr("give the folder that model.safetensors is in"));
  write("converted/pytorch_model.bin", "PK");
  EXPECT_THAT(refusal(converted), HasSubstr("save_pretrained(NEW) writes pytorch_model.bin as safetensors"));
  EXPECT_THAT(refusal(fetched), HasSubstr("not all of the model is here: HF_HUB_CACHE=" + folder_.string() +
                                          " gputrain fetch org/model@" + std::string(40, 'a')));
}

TEST_F(WeightFilesTest, AdvisesConversionThatWorks) {
  GPUTRAIN_NEED_REFERENCE("safetensors");
  const std::string advice = kTorchConversion;
  write("w.ckpt", "PK");
  EXPECT_THAT(refusal(folder_ / "w.ckpt"), HasSubstr(advice));
  const std::string code = advice.substr(advice.find("import"));
  EXPECT_TRUE(gputrain::testing::run_reference("checkpoint/torch_conversion.py", {code, folder_}));
}

}  // namespace
}  // namespace gputrain::checkpoint
