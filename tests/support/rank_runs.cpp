#include "support/rank_runs.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <utility>

#include "support/ports.hpp"

namespace gputrain::testing_support {

RankPrograms start_ranks(int world, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), gputrain_path());
  const std::string port = std::to_string(::gputrain::testing::free_port()), size = std::to_string(world);
  RankPrograms programs;
  for (int rank = 0; rank < world; ++rank) {
    const std::string number = std::to_string(rank);
    programs.push_back(
        std::make_unique<Program>(arguments, std::map<std::string, std::string>{{"RANK", number},
                                                                                {"LOCAL_RANK", number},
                                                                                {"WORLD_SIZE", size},
                                                                                {"LOCAL_WORLD_SIZE", size},
                                                                                {"MASTER_ADDR", "127.0.0.1"},
                                                                                {"MASTER_PORT", port}}));
  }
  return programs;
}

RankPrograms start_ranks(int world, const std::string& job, const std::string& output,
                         const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"run", job, "--output-dir", output};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return start_ranks(world, std::move(arguments));
}

Result wait_for(RankPrograms& programs) {
  Result first = programs[0]->wait();
  for (size_t rank = 1; rank < programs.size(); ++rank) EXPECT_EQ(programs[rank]->wait().exit_code, first.exit_code);
  return first;
}

Result ranks(int world, const std::string& job, const std::string& output, const std::vector<std::string>& more) {
  RankPrograms programs = start_ranks(world, job, output, more);
  return wait_for(programs);
}

void expect_equal_losses(const std::string& a, const std::string& b, double tolerance) {
  const auto expected = values(a, "train/loss"), actual = values(b, "train/loss");
  ASSERT_EQ(expected.size(), 20U);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance) << "step " << i + 1;
}

void copy_without_the_end(const std::string& from, const std::string& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(to + "/ckpt/step-00000020");
}

}  // namespace gputrain::testing_support
