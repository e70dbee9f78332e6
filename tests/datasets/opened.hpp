// Opens data as a job does, from YAML, and writes small files for it.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gputrain/config/load.hpp"
#include "gputrain/data/open.hpp"

namespace gputrain::datasets {

struct JobWithData {
  data::DataSpec data;

  static void describe(config::Description<JobWithData>& d) { d.key("data", &JobWithData::data, "data").required(); }
};

/// The datasets of a job with this `data` section (one flow map), for a model that reads this.
inline data::DatasetSplits open_for(const InputSpec& model, const std::string& section,
                                    const std::vector<std::string>& own_folders = {}) {
  const config::Loaded job =
      config::load(config::schema_of<JobWithData>(), {.file = "job.yaml", .text = "data: " + section});
  return data::open_datasets(job.as<JobWithData>().data, model, own_folders);
}

inline data::DatasetSplits open(const std::string& section, int64_t longest_sequence = 0,
                                const std::vector<std::string>& own_folders = {}) {
  const InputSpec tokens{.field = kTokens, .longest = longest_sequence};
  return open_for(longest_sequence > 0 ? tokens : InputSpec(), section, own_folders);
}

/// The options of images of 32 x 32 pixels with these augmentations.
inline data::ImageOptions augmented(const std::string& augment) {
  const std::string text = "data: {train: {format: synthetic}, image: {size: 32, augment: {" + augment + "}}}";
  const auto job = config::load(config::schema_of<JobWithData>(), {.file = "job.yaml", .text = text});
  return job.as<JobWithData>().data.image;
}

/// A sample as the dataset writes it: input and target classes.
struct Sample {
  std::vector<std::byte> input;
  std::vector<int64_t> target;

  std::vector<int64_t> tokens() const {
    std::vector<int64_t> values(input.size() / sizeof(int64_t));
    std::memcpy(values.data(), input.data(), input.size());
    return values;
  }
  friend bool operator==(const Sample&, const Sample&) = default;
};

inline Sample read(const data::Dataset& dataset, int64_t index, const data::ReadContext& context = {}) {
  const auto& fields = dataset.layout().fields;
  Sample sample{std::vector<std::byte>(fields[0].bytes()),
                std::vector<int64_t>(static_cast<size_t>(fields[1].numel()))};
  const data::BatchMemory memory{
      {.values = sample.input.data(), .bytes = fields[0].bytes(), .element_bytes = c10::elementSize(fields[0].type)},
      {.values = reinterpret_cast<std::byte*>(sample.target.data()),
       .bytes = fields[1].bytes(),
       .element_bytes = sizeof(int64_t)}};
  dataset.read(index, context, data::SampleRow(memory, 0));
  return sample;
}

/// A sample of a language model, of as many tokens as it has.
struct RaggedSample {
  std::vector<int64_t> tokens, targets, positions;

  friend bool operator==(const RaggedSample&, const RaggedSample&) = default;
};

inline RaggedSample read_fields(const data::Dataset& dataset, int64_t index) {
  const auto& fields = dataset.layout().fields;
  const size_t most = static_cast<size_t>(fields[0].sizes[0]);
  std::vector<std::vector<int64_t>> values(fields.size(), std::vector<int64_t>(most, -7));
  std::vector<int64_t> counts(fields.size(), static_cast<int64_t>(most));
  data::BatchMemory memory;
  for (size_t i = 0; i < fields.size(); ++i) {
    memory.push_back({.values = reinterpret_cast<std::byte*>(values[i].data()),
                      .counts = fields[i].ragged ? &counts[i] : nullptr,
                      .bytes = fields[i].bytes(),
                      .element_bytes = sizeof(int64_t)});
  }
  dataset.read(index, {}, data::SampleRow(memory, 0));
  for (size_t i = 0; i < fields.size(); ++i) values[i].resize(static_cast<size_t>(counts[i]));
  return {values[0], values[1], fields.size() > 2 ? values[2] : std::vector<int64_t>()};
}

/// The message of the error that `action` throws, with a check of its exit code; empty if it throws none.
template <class Action>
std::string error_of(Action&& action, ExitCode code = ExitCode::data) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return {};
}

/// What `action` prints to stderr.
template <class Action>
std::string warning_of(Action&& action) {
  ::testing::internal::CaptureStderr();
  action();
  return ::testing::internal::GetCapturedStderr();
}

/// A test with a temporary folder of its own.
class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("gputrain_" + std::to_string(::getpid()) + "_" + test->test_suite_name() + "_" + test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return path(name);
  }

  std::filesystem::path folder_;
};

/// The folder of real data for tests labelled `data`; empty if it does not exist.
inline std::string real_data(const std::string& name) {
  const char* given = std::getenv("GPUTRAIN_TEST_DATA");
  const std::filesystem::path folder = given ? given : GPUTRAIN_SOURCE_DIR "/../shared/data";
  std::error_code ignored;
  return std::filesystem::exists(folder / name, ignored) ? (folder / name).string() : "";
}

}  // namespace gputrain::datasets

/// Sets `variable` to the path of real data, or skips the test.
#define GPUTRAIN_NEED_DATA(variable, name)                            \
  const std::string variable = ::gputrain::datasets::real_data(name); \
  if (variable.empty()) GTEST_SKIP() << "no " << name << " in the folder that GPUTRAIN_TEST_DATA names"
