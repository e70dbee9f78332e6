// Out of memory, under a limit that the kernel enforces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <exception>
#include <future>
#include <initializer_list>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/resume/record.hpp"
#include "support/ports.hpp"
#include "support/program.hpp"
#include "support/sanitizers.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

const std::bad_alloc kNoMemory;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class OutOfMemoryPage : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kIsSanitized) GTEST_SKIP() << testing::kNoDataLimit;
  }
  /// Runs a text model with about 350 MiB of activations, in a process limited to `mebibytes` of data.
  Result run_within(int mebibytes, std::vector<std::string> more = {},
                    std::map<std::string, std::string> environment = {}) {
    std::vector<std::string> arguments{"sh",
                                       "-c",
                                       "ulimit -d " + std::to_string(mebibytes * 1024) + "; exec \"$@\"",
                                       "sh",
                                       gputrain_path(),
                                       "run",
                                       job_,
                                       "--output-dir",
                                       run_};
    for (const char* set :
         {"device=cpu", "precision=fp32", "model.config.n_layer=4", "model.config.n_embd=256",
          "model.config.block_size=64", "train.global_batch_size=96", "train.max_steps=2", "data.num_workers=0"}) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    environment.emplace("OMP_NUM_THREADS", "1");
    return Program(arguments, environment).wait();
  }

  TemporaryFolder folder_;
  std::string job_ = write_gpt_job(folder_), run_ = folder_ / "run";
};

TEST_F(OutOfMemoryPage, ShowsUseAndRemedies) {
  const Result result = run_within(450);
  EXPECT_EQ(result.exit_code, 6) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("error: out of memory in step 1: "));
  for (const char* part :
       {"parameters ", "gradients ", "optimizer state ", "rest ", "limit              450 MiB  by ulimit -d"}) {
    EXPECT_THAT(result.err, HasSubstr(part));
  }
  EXPECT_THAT(result.err, HasSubstr("the global batch stays 96\n    2  --set train.activation_checkpointing=block "));
  const auto summary = nlohmann::json::parse(read_file(run_ + "/summary.json"));
  EXPECT_EQ(summary["exit_code"], 6);
  EXPECT_THAT(summary["reason"].get<std::string>(),
              MatchesRegex("out of memory in step 1: [0-9.]+ MiB more could not be allocated"));
}

TEST_F(OutOfMemoryPage, ShowsSamePageInDryRun) {
  const Result result = run_within(300, {"--dry-run"});
  EXPECT_EQ(result.exit_code, 6) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("error: out of memory in the dry run: "));
  EXPECT_THAT(result.err, HasSubstr("activations of a micro-batch of 96"));
  EXPECT_THAT(result.err, HasSubstr("\n    1  --set train.micro_batch_size="));
}

TEST_F(OutOfMemoryPage, OffersFirstRemedyThatWorks) {
  const Result refused = run_within(450);
  ASSERT_EQ(refused.exit_code, 6) << refused.out;
  const size_t begin = refused.err.find("1  --set ") + 9;
  const std::string remedy = refused.err.substr(begin, refused.err.find(' ', begin) - begin);
  EXPECT_THAT(remedy, HasSubstr("train.micro_batch_size="));
  const Result result = run_within(450, {"--set", remedy});
  EXPECT_EQ(result.exit_code, 0) << remedy << "\n" << result.err;
}

TEST_F(OutOfMemoryPage, SuggestsShardingForTwoRanks) {
  std::map<std::string, std::string> place{{"LOCAL_WORLD_SIZE", "2"},
                                           {"WORLD_SIZE", "2"},
                                           {"MASTER_ADDR", "127.0.0.1"},
                                           {"MASTER_PORT", std::to_string(::gputrain::testing::free_port())}};
  const auto number = [&](const char* rank) { place["RANK"] = place["LOCAL_RANK"] = rank; };
  number("1");
  auto other = std::async(std::launch::async, [&, there = place] {
    return run_within(4000, {"--set", "train.global_batch_size=192"}, there);
  });
  number("0");
  const Result result = run_within(450, {"--set", "train.global_batch_size=192"}, place);
  EXPECT_EQ(result.exit_code, 6) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("--set parallel.shard=gradients "));
  EXPECT_THAT(result.err, HasSubstr("each of 2 ranks keeps its part of gradients and optimizer state"));
  EXPECT_EQ(other.get().exit_code, 6);
}

TEST_F(OutOfMemoryPage, ReportsTooLargeModelBeforeFirstStep) {
  const Result result = run_within(450, {"--set", "model.config.n_embd=2048"});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("out of memory before the first step: "));
  EXPECT_THAT(result.err, HasSubstr("1  --set model.config.n_layer=2 "));
  EXPECT_THAT(result.err, Not(HasSubstr("micro_batch_size")));
}

TEST(FailureExitCode, FollowsFromTheException) {
  const std::system_error no_thread(EAGAIN, std::generic_category());
  for (const std::exception* failure : std::initializer_list<const std::exception*>{&no_thread, &kNoMemory})
    EXPECT_EQ(app::exit_code_of(*failure), 6) << failure->what();
  EXPECT_EQ(app::exit_code_of(std::runtime_error("a bug")), 1);
  EXPECT_EQ(app::exit_code_of(Error(ExitCode::data, {.what = "no such file"})), 3);
}

}  // namespace
}  // namespace gputrain::testing_support
