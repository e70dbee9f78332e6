#include "gputrain/checkpoint/safetensors_writer.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "gputrain/device/allocation_meter.hpp"
#include "gputrain/device/arena.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMebibyte = 1 << 20;

class SafetensorsWriterTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string content_of(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  size_t files_in_folder() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_safetensors_writer_" + std::to_string(::getpid()));
};

/// Of several types, strides and sizes; one fills several blocks.
NamedTensors many_tensors() {
  return {{"large", at::arange(kMebibyte + 5, at::kFloat)},
          {"wide", at::arange(7, at::kDouble)},
          {"images", at::arange(120, at::kFloat).reshape({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast)},
          {"half", at::arange(33, at::kHalf)},
          {"empty", at::full({0, 3}, 1.f)},
          {"count", at::full({}, 5, at::kLong)}};
}

TEST_F(SafetensorsWriterTest, WritesTheSameBytesInAnyOrder) {
  const NamedTensors tensors = many_tensors();
  const Metadata metadata{{"told", "yes"}};
  const std::map<std::string, at::Tensor> values(tensors.begin(), tensors.end());
  const FileSeal seal = write_safetensors(folder_ / "expected", tensors, metadata);
  const auto count = std::ssize(tensors);
  for (int64_t in_order = 0; in_order < count; ++in_order) {
    SafetensorsWriter writer(folder_ / "written", tensors, metadata);
    std::vector<std::string> order = writer.names();
    std::rotate(order.begin() + in_order, order.end() - 1, order.end());
    for (const std::string& name : order) writer.write(name, values.at(name));
    EXPECT_EQ(writer.commit(), in_order == count - 1 ? std::optional(seal) : std::nullopt);
    EXPECT_TRUE(content_of("written") == content_of("expected")) << in_order << " in the file's order at first";
  }
}

TEST_F(SafetensorsWriterTest, HasOneTensorInMemory) {
  constexpr int64_t kTensors = 16, kBytes = 2 * kMebibyte, kBlocks = 11 * kMebibyte;  // of the pipe to the disk
  const at::Tensor told = at::full({kBytes / 4}, 0.f);
  device::take_memory(told);
  NamedTensors tensors;
  for (int64_t i = 0; i < kTensors; ++i) tensors.emplace_back("w" + std::to_string(i), told);
  const device::AllocationMeter meter;
  SafetensorsWriter writer(folder_ / "model", tensors);
  for (int64_t i = kTensors - 1; i >= 0; --i)
    writer.write(tensors[static_cast<size_t>(i)].first, at::full({kBytes / 4}, static_cast<float>(i)));
  writer.commit();
  EXPECT_GE(meter.peak_bytes(), kBytes);
  EXPECT_LE(meter.peak_bytes(), kBytes + kBlocks);
  EXPECT_EQ(SafetensorsFile(folder_ / "model").tensor("w7")[5].item<float>(), 7);
}

TEST_F(SafetensorsWriterTest, LeavesNothingWithoutCommit) {
  const at::Tensor ones = at::full({4}, 1.f);
  SafetensorsWriter(folder_ / "model", {{"a", ones}, {"b", ones}}).write("b", ones);
  EXPECT_EQ(files_in_folder(), 0U);
}

// A limit of the file's size makes the kernel fail a write in the middle, like a full disk.
TEST_F(SafetensorsWriterTest, KeepsOldFileWhenDiskRefuses) {
  const NamedTensors tensors{{"a", at::full({500}, 1.f)}, {"b", at::full({500}, 2.f)}};
  write_safetensors(folder_ / "model", {{"old", at::full({2}, 3.f)}});
  const std::string old = content_of("model");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{3000, before.rlim_max};
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  try {
    SafetensorsWriter writer(folder_ / "model", tensors);
    writer.write("b", tensors[1].second);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    EXPECT_NE(error.parts().what.find("File too large"), std::string::npos) << error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(content_of("model"), old);
  EXPECT_EQ(files_in_folder(), 1U);
}

}  // namespace
}  // namespace gputrain::checkpoint
