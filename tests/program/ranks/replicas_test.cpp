// A bit flips in the memory of one rank, as with a faulty memory module or a cosmic ray.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>

#include "support/program.hpp"
#include "support/rank_runs.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

/// Updates too small to change a weight, so the weights are known at every step.
std::string write_still_job(const TemporaryFolder& folder, const std::string& parallel) {
  return folder.write("job.yaml",
                      "schema: 1\ndevice: cpu\n"
                      "model: {type: mlp, config: {hidden: [32, 16]}}\n"
                      "data: {train: {format: synthetic}, image: {size: 8}}\n"
                      "train: {max_steps: 10000, global_batch_size: 12}\n"
                      "optimizer: {type: sgd, lr: 1e-30, momentum: 0, weight_decay: 0}\n"
                      "checkpoint: {interval: null}\nlog: {interval: 1}\nparallel: " +
                          parallel + "\n");
}

struct Weights {
  std::string name;
  std::string bytes;
};

/// The first bytes of the largest tensor after a run of one step.
Weights known_weights(const TemporaryFolder& folder, const std::string& job) {
  const Result result = gputrain({"run", job, "--output-dir", folder / "one", "--set", "train.max_steps=1"});
  if (result.exit_code != 0) throw std::runtime_error(result.err);
  const std::string file = read_file(folder / "one/model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  Weights weights;
  size_t largest = 0;
  const auto header = nlohmann::json::parse(file.substr(8, header_bytes));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    if (end - begin <= largest) continue;
    largest = end - begin;
    weights = {name, file.substr(8 + header_bytes + begin, std::min<size_t>(512, largest))};
  }
  return weights;
}

constexpr uint64_t kLargestRegion = uint64_t{1} << 32;  // a sanitizer's own regions have terabytes

/// Flips the lowest bit in the middle of each copy of `bytes` in the process's writable memory; returns the number of
/// copies.
int flip_bit(pid_t process, const std::string& bytes) {
  const std::string folder = "/proc/" + std::to_string(process);
  const int memory = ::open((folder + "/mem").c_str(), O_RDWR | O_CLOEXEC);
  if (memory < 0) throw std::runtime_error("cannot open " + folder + "/mem");
  std::istringstream maps(read_file(folder + "/maps"));
  int flipped = 0;
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0;
    char dash = 0;
    std::string rights;
    std::istringstream(line) >> std::hex >> begin >> dash >> end >> rights;
    if (!rights.starts_with("rw") || end - begin > kLargestRegion) continue;
    std::string held(end - begin, '\0');
    const ssize_t count = ::pread(memory, held.data(), held.size(), static_cast<off_t>(begin));
    held.resize(count > 0 ? static_cast<size_t>(count) : 0);
    for (size_t at = held.find(bytes); at != std::string::npos; at = held.find(bytes, at + 1)) {
      const size_t middle = at + bytes.size() / 2;
      const auto changed = static_cast<char>(held[middle] ^ 1);
      flipped += ::pwrite(memory, &changed, 1, static_cast<off_t>(begin + middle)) == 1 ? 1 : 0;
    }
  }
  ::close(memory);
  return flipped;
}

class ReplicaCheck : public ::testing::Test {
 protected:
  /// Trains with `world` ranks until the first step is printed, and flips a bit of rank 1. Without sharding, which
  /// would restore the value from its owner in every step.
  void start_and_flip(int world, const std::string& parallel) {
    const std::string job = write_still_job(folder_, parallel);
    weights_ = known_weights(folder_, job);
    programs_ = start_ranks(world, job, folder_ / "run");
    ASSERT_TRUE(programs_[0]->prints("step    "));
    ASSERT_GE(flip_bit(programs_[1]->id(), weights_.bytes), 1);
  }

  TemporaryFolder folder_;
  Weights weights_;
  RankPrograms programs_;
};

TEST_F(ReplicaCheck, EndsRunAndNamesFlippedTensorAndRank) {
  start_and_flip(3, "{check_replicas: 25}");
  const Result result = wait_for(programs_);
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr(": " + weights_.name + " on rank 1 is not what the other ranks have"));
  const auto summary = nlohmann::json::parse(read_file(folder_ / "run/summary.json"));
  EXPECT_THAT(summary["reason"].get<std::string>(), HasSubstr("drifted apart at step "));
  EXPECT_EQ(summary["step"].get<int>() % 25, 0);
}

TEST_F(ReplicaCheck, PreventsSavingAFlippedBit) {
  start_and_flip(2, "{check_replicas: 100000000}");
  std::ofstream(folder_ / "run/SAVE");
  const Result result = wait_for(programs_);
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr(": " + weights_.name + " on rank 1 is not what rank 0 has"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "run/ckpt")) << "nothing was saved";
}

}  // namespace
}  // namespace gputrain::testing_support
