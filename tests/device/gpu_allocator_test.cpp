#include "gputrain/device/gpu_allocator.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/python_reference.hpp"

namespace gputrain::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(GpuAllocatorSettings, AreJudgedAsPyTorchDoes) {
  GPUTRAIN_NEED_REFERENCE("torch");
  const std::vector<std::string> settings{"expandable_segments:True",
                                          "expandable_segments:true",
                                          "expandable_segments:1",
                                          "expandable_segments",
                                          "expandable_segments:",
                                          "expandable_segments=True",
                                          " expandable_segments : False ",
                                          "expandable_segments:True,max_split_size_mb:20",
                                          "max_split_size_mb:x",
                                          "large_segment_size_mb:10",
                                          "large_segment_size_mb:11",
                                          "large_segment_size_mb:20",
                                          "max_non_split_rounding_mb:20",
                                          "max_non_split_rounding_mb:1",
                                          "garbage_collection_threshold:0.8",
                                          "garbage_collection_threshold:0",
                                          "garbage_collection_threshold:1",
                                          "roundup_power2_divisions:4",
                                          "roundup_power2_divisions:3",
                                          "roundup_power2_divisions:[256:1,512:2,>:4]",
                                          "roundup_power2_divisions:[256:3]",
                                          "roundup_power2_divisions:[300:4]",
                                          "roundup_power2_divisions:[256:1,512:2",
                                          "roundup_power2_divisions:[256:0]",
                                          "per_process_memory_fraction:0.5",
                                          "per_process_memory_fraction:0",
                                          "per_process_memory_fraction:1",
                                          "per_process_memory_fraction:1.1",
                                          "pinned_use_background_threads:True",
                                          "pinned_use_cuda_host_register:True",
                                          "pinned_num_register_threads:8",
                                          "pinned_num_register_threads:3",
                                          "pinned_num_register_threads:128",
                                          "pinned_num_register_threads:256",
                                          "pinned_num_register_threads:0",
                                          "pinned_reserve_segment_size_mb:64",
                                          "pinned_reserve_segment_size_mb:0",
                                          "graph_capture_record_stream_reuse:True",
                                          "release_lock_on_cudamalloc:True",
                                          "backend:native",
                                          "backend:cudaMallocAsync",
                                          "backend:other",
                                          "foo:1",
                                          ":",
                                          ","};
  const auto folder = std::filesystem::temp_directory_path() / ("gputrain_allocator_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream given(folder / "settings");
  for (const auto& setting : settings) given << setting << "\n";
  given.close();
  ASSERT_TRUE(testing::run_reference("device/gpu_allocator_reference.py", {folder / "settings", folder / "verdicts"}));
  std::ifstream verdicts(folder / "verdicts");
  for (const auto& setting : settings) {
    std::string verdict;
    ASSERT_TRUE(std::getline(verdicts, verdict));
    EXPECT_EQ(problem_of_allocator_settings(setting).empty() ? "yes" : "no", verdict) << setting;
  }
  std::filesystem::remove_all(folder);
}

// PyTorch reads only the leading digits, or values that overflow its type.
TEST(GpuAllocatorSettings, AreRefusedWherePyTorchMisreadsThem) {
  for (const char* setting : {"max_split_size_mb:128abc", "max_split_size_mb:-1", "max_split_size_mb:30.5", "",
                              "max_split_size_mb:19", "expandable_segments:True,"}) {
    EXPECT_NE(problem_of_allocator_settings(setting), "") << setting;
  }
}

TEST(GpuAllocatorSettings, AreRefusedWithASuggestion) {
  EXPECT_THAT(problem_of_allocator_settings("expandable_segments:true"), HasSubstr("must be True or False"));
  EXPECT_THAT(problem_of_allocator_settings("expandable_segment:True"),
              AllOf(HasSubstr("no setting 'expandable_segment'"), HasSubstr("only expandable_segments, max_split")));
  EXPECT_THAT(problem_of_allocator_settings("backend:cudaMallocAsync"), HasSubstr("env: {PYTORCH_ALLOC_CONF"));
}

}  // namespace
}  // namespace gputrain::device
