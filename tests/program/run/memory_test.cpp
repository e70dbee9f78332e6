// Out of memory, under a limit that the kernel enforces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <exception>
#include <future>
#include <initializer_list>
#include <map>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/estimate/memory.hpp"
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

/// The settings offered for a pretrained decoder, of which only the sizes are known.
std::string offered(const TemporaryFolder& folder, const std::vector<std::string>& settings) {
  folder.write("base/config.json",
               R"({"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
                   "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512, "rms_norm_eps": 1e-6,
                   "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": false})");
  const std::string file = folder.write(
      "tuned.yaml", "schema: 1\ndevice: cpu\nprecision: bf16\nmodel: {type: gpt, pretrained: " + folder / "base" +
                        "}\ndata: {train: {format: synthetic, vocab_size: 512, samples: 64}}\n"
                        "train: {max_steps: 1, global_batch_size: 4}\noptimizer: {type: adamw, lr: 1e-4}\n");
  const app::Job job = app::load_job({.file = file, .set = settings, .output_dir = {}});
  const app::TrainingSetup setup(
      job, app::simulate_rank(job, {}, std::make_shared<comm::CollectiveTraffic>()),
      [&] { return app::open_datasets(job, app::Purpose::planning); }, /*kept_global_batch=*/0, app::Weights::sizes);
  app::Memory memory{
      .fixed = app::fixed_memory(setup.built, setup.optimizer_stack), .activations = {}, .micro_batch = 4};
  memory.activations.measure(4, 32 << 20);
  memory.limit = memory.total() / 2;
  return app::memory_remedies(job, setup, memory);
}

TEST_F(OutOfMemoryPage, OffersAdaptersAndPackedWeights) {
  const std::string all = offered(folder_, {});
  const auto place = [&](const char* setting) { return all.find("--set " + std::string(setting)); };
  for (const char* setting : {"train.micro_batch_size=", "optimizer.type=adamw8bit ", "optimizer.master=bf16 ",
                              "model.adapter.type=lora ", "model.adapter.type=lora --set model.quantize.type=nf4 "})
    EXPECT_THAT(all, HasSubstr("--set " + std::string(setting)));
  EXPECT_LT(place("train.micro_batch_size="), place("optimizer.master=bf16"));
  EXPECT_LT(place("optimizer.master=bf16"), place("model.adapter.type=lora"));

  const std::string adapted = offered(folder_, {"model.adapter.type=lora"});
  EXPECT_THAT(adapted, HasSubstr("--set model.quantize.type=nf4 "));
  EXPECT_THAT(adapted, Not(HasSubstr("model.adapter")));
  EXPECT_THAT(offered(folder_, {"model.adapter.type=lora", "model.quantize.type=nf4"}),
              Not(HasSubstr("model.quantize")));
  EXPECT_THAT(offered(folder_, {"optimizer.type=adamw8bit", "optimizer.master=bf16"}), Not(HasSubstr("optimizer.")));
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
