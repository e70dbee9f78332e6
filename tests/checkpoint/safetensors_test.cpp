#include "gputrain/checkpoint/safetensors.hpp"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/python_reference.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string bytes_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  fs::path file_of(const std::string& header, const std::string& data) const {
    std::ofstream file(folder_ / "raw.safetensors", std::ios::binary);
    const uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), 8) << header << data;
    return folder_ / "raw.safetensors";
  }

  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_safetensors_" + std::to_string(::getpid()));
};

/// The agreed tensors of safetensors_reference.py.
NamedTensors agreed_tensors() {
  const at::Tensor counted = at::arange(24).reshape({2, 3, 4});
  NamedTensors tensors;
  const std::vector<std::pair<std::string, at::ScalarType>> types{{"float64", at::kDouble},
                                                                  {"float32", at::kFloat},
                                                                  {"float16", at::kHalf},
                                                                  {"bfloat16", at::kBFloat16},
                                                                  {"int64", at::kLong},
                                                                  {"int32", at::kInt},
                                                                  {"int16", at::kShort},
                                                                  {"int8", at::kChar},
                                                                  {"uint8", at::kByte},
                                                                  {"uint16", at::kUInt16},
                                                                  {"uint32", at::kUInt32},
                                                                  {"uint64", at::kUInt64},
                                                                  {"float8_e4m3fn", at::kFloat8_e4m3fn},
                                                                  {"float8_e5m2", at::kFloat8_e5m2}};
  for (const auto& [name, type] : types) tensors.emplace_back(name, counted.to(type));
  tensors.emplace_back("bool", at::remainder(counted, 3).eq(0));
  tensors.emplace_back("scalar", at::full({}, 2.5f));
  tensors.emplace_back("empty", at::zeros({0, 5}));
  tensors.emplace_back("channels_last",
                       at::arange(120, at::kFloat).reshape({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast));
  tensors.emplace_back("transposed", at::arange(6, at::kFloat).reshape({2, 3}).t());
  tensors.emplace_back("näme \"quoted\"", at::ones({3}).requires_grad_(true));
  return tensors;
}

void expect_agreed_tensors(const SafetensorsFile& file) {
  const NamedTensors expected = agreed_tensors();
  EXPECT_EQ(file.names().size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    const at::Tensor found = file.tensor(name);
    EXPECT_EQ(found.scalar_type(), tensor.scalar_type()) << name;
    ASSERT_EQ(found.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(at::equal(found.to(at::kDouble), tensor.to(at::kDouble))) << name;
  }
}

TEST_F(SafetensorsTest, RoundTripsEveryDtypeShapeAndLayout) {
  const fs::path path = folder_ / "model.safetensors";
  write_safetensors(path, agreed_tensors());
  EXPECT_EQ(read_safetensors_header(path, ExitCode::data).metadata.at("format"), "pt");
  expect_agreed_tensors(SafetensorsFile(path));
}

TEST_F(SafetensorsTest, MatchesPythonPackageByteForByte) {
  GPUTRAIN_NEED_REFERENCE("safetensors");
  const fs::path ours = folder_ / "ours.safetensors", theirs = folder_ / "theirs.safetensors";
  const FileSeal seal = write_safetensors(ours, agreed_tensors());
  ASSERT_TRUE(gputrain::testing::run_reference("checkpoint/safetensors_reference.py", {ours, theirs}));
  expect_agreed_tensors(SafetensorsFile(theirs));
  EXPECT_EQ(bytes_of(ours), bytes_of(theirs));
  Sealer sealer;
  sealer.add(bytes_of(theirs).data(), bytes_of(theirs).size());
  EXPECT_EQ(seal, sealer.seal());
}

TEST_F(SafetensorsTest, ReadsUnalignedTensors) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})";
  const double value = 1.5;
  const std::string data = "x" + std::string(reinterpret_cast<const char*>(&value), 8);
  for (size_t pad = 0; pad < 8; ++pad) {
    const SafetensorsFile file(file_of(header + std::string(pad, ' '), data));
    const at::Tensor tensor = file.tensor("b");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 8, 0u);
    EXPECT_EQ(tensor.item<double>(), 1.5);
  }
}

TEST_F(SafetensorsTest, RefusesBooleansOtherThanZeroAndOne) {
  const SafetensorsFile file(file_of(R"({"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", {"\0\1\2", 3}));
  EXPECT_THROW(static_cast<void>(file.tensor("mask")), Error);
}

TEST_F(SafetensorsTest, KeepsTensorsAliveAfterFileIsGone) {
  std::optional<SafetensorsFile> file(
      file_of(R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", std::string(8, '\1')));
  const at::Tensor tensor = file->tensor("a");
  file.reset();
  fs::remove(folder_ / "raw.safetensors");
  EXPECT_EQ(tensor.item<int64_t>(), 0x0101010101010101);
}

/// The resident bytes of this process that are of files.
int64_t bytes_of_files() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "RssFile:" && status >> word) return std::stoll(word) * 1024;
  return 0;
}

TEST_F(SafetensorsTest, GivesBackTheMemoryOfWhatNobodyHas) {
  const fs::path path = folder_ / "model.safetensors";
  constexpr int64_t kNumbers = int64_t{1} << 23;  // far more than the pages of code that are read meanwhile
  write_safetensors(path, {{"a", at::ones({kNumbers})}, {"b", at::ones({kNumbers})}});
  const SafetensorsFile file(path);
  const int64_t before = bytes_of_files();
  at::Tensor held = file.tensor("a");
  const at::Tensor view = file.tensor("a").narrow(0, 5, 10);
  for (const char* name : {"a", "b"}) EXPECT_TRUE(file.tensor(name).eq(1).all().item<bool>());
  const int64_t one = bytes_of_files() - before;
  EXPECT_GT(one, 3 * kNumbers);  // a is held
  EXPECT_LT(one, 5 * kNumbers);
  held.fill_(2);
  EXPECT_TRUE(file.tensor("a").eq(2).all().item<bool>());
  EXPECT_EQ(view.sum().item<float>(), 20);
  held = at::Tensor();
  EXPECT_EQ(view.sum().item<float>(), 20);
  EXPECT_TRUE(file.tensor("b").eq(1).all().item<bool>());
}

TEST_F(SafetensorsTest, NeverWritesBackToTheFile) {
  const fs::path path = folder_ / "model.safetensors";
  write_safetensors(path, {{"w", at::ones({4})}});
  SafetensorsFile(path).tensor("w").fill_(7);
  EXPECT_EQ(SafetensorsFile(path).tensor("w").sum().item<float>(), 4);
}

TEST_F(SafetensorsTest, NamesFileAndMissingTensor) {
  const fs::path path = folder_ / "model.safetensors";
  write_safetensors(path, {{"w", at::ones({4})}});
  try {
    static_cast<void>(SafetensorsFile(path, ExitCode::checkpoint).tensor("bias"));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    EXPECT_STREQ(error.what(), (path.string() + ": there is no tensor 'bias'").c_str());
  }
}

TEST_F(SafetensorsTest, RefusesWhatIsNoFile) {
  EXPECT_THROW(SafetensorsFile{folder_}, Error);
  EXPECT_THROW(SafetensorsFile{folder_ / "missing"}, Error);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(SafetensorsFile{folder_ / "pipe"}, Error);
  std::ofstream(folder_ / "empty.safetensors");
  EXPECT_THROW(SafetensorsFile{folder_ / "empty.safetensors"}, Error);
}

TEST_F(SafetensorsTest, KeepsOldFileWhenNewOneFails) {
  const fs::path path = folder_ / "model.safetensors";
  write_safetensors(path, {{"w", at::ones({4})}});
  fs::create_directory(folder_ / "model.safetensors.partial");  // blocks the temporary name of the new file
  EXPECT_THROW(write_safetensors(path, {{"w", at::zeros({4})}}), Error);
  EXPECT_EQ(SafetensorsFile(path).tensor("w").sum().item<float>(), 4);
}

}  // namespace
}  // namespace gputrain::checkpoint
