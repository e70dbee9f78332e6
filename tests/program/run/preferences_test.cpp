// Language models that learn from made-up preferences, on one rank or two, and go on where they stopped.
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/job_runs.hpp"
#include "support/rank_runs.hpp"

namespace gputrain::testing_support {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kPairs = 512, kSeen = 385;  // the last step of an epoch has a sample or two: less than ranks

/// A prompt of three words, and two answers: the first word decides which is better.
Json pair_of(int number) {
  constexpr const char* kWords[] = {"red", "green", "blue", "pink", "old", "new", "small", "big"};
  const int i = (number * 101) % kPairs, first = i % 8;
  const std::string prompt =
      std::string(kWords[first]) + " " + kWords[(i / 8) % 8] + " " + kWords[(i / 64) % 8] + " is";
  const bool is_colour = first < 4;
  return {{"prompt", prompt},
          {"chosen", is_colour ? " a colour" : " a size indeed"},
          {"rejected", is_colour ? " a size indeed" : " a colour"}};
}

class Preferences : public JobRuns {
 protected:
  std::string write_job(const std::string& task, const std::string& more = "") const {
    std::string seen, unseen;
    for (int i = 0; i < kPairs; ++i) (i < kSeen ? seen : unseen) += pair_of(i).dump() + "\n";
    folder_.write("seen.jsonl", seen);
    folder_.write("unseen.jsonl", unseen);
    const bool is_reward = task.find("reward") != std::string::npos;
    return folder_.write("job.yaml", R"(
seed: 3
device: cpu
model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 32, block_size: 16)" +
                                         std::string(is_reward ? ", head: classifier" : "") + R"(}}
task: )" + task + R"(
data: {train: {path: )" + (folder_ / "seen.jsonl") +
                                         R"(, format: jsonl}, val: {path: )" + (folder_ / "unseen.jsonl") +
                                         R"(, format: jsonl}, text: {tokenizer: words}}
train: {max_steps: 60, global_batch_size: 32}
optimizer: {type: adamw, lr: 0.005}
eval: {interval: 60}
log: {interval: 1}
)" + more);
  }
};

struct Preferred {
  const char *name, *task, *metric;
  double least;
};

class PreferenceTasks : public Preferences, public ::testing::WithParamInterface<Preferred> {};
INSTANTIATE_TEST_SUITE_P(All, PreferenceTasks,
                         ::testing::Values(Preferred{"dpo", "{type: dpo}", "val/accuracy", 95},
                                           Preferred{"dpo_packed", "{type: dpo}", "val/accuracy", 95},
                                           Preferred{"orpo", "{type: orpo, config: {beta: 1}}", "val/accuracy", 95},
                                           Preferred{"simpo", "{type: simpo}", "val/accuracy", 95},
                                           Preferred{"kto", "{type: kto}", "val/margin", 0.2},
                                           Preferred{"reward", "{type: reward}", "val/accuracy", 95}),
                         [](const auto& entry) { return std::string(entry.param.name); });

TEST_P(PreferenceTasks, WinOnUnseenPairs) {
  const auto& [name, task, metric, least] = GetParam();
  std::vector<std::string> more;
  if (std::string(name).ends_with("packed"))
    more = {"--set", "data.text.packing=true",     "--set", "data.text.max_length=64",
            "--set", "model.config.block_size=64", "--set", "train.global_batch_size=8"};
  const Result result = run(write_job(task), "run", more);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GE(metrics("run")[metric].get<double>(), least) << result.out;
}

TEST_F(Preferences, AreTheSameOnSeveralRanksAfterAStopAndInAnEvaluation) {
  for (const std::string task : {"dpo", "kto"}) {
    SCOPED_TRACE(task);
    const std::string job =
        write_job("{type: " + task + "}", "precision: fp64\ncheckpoint: {interval: 10, keep_last: 3}\n");
    const std::vector<std::string> steps{"--set", "train.max_steps=20", "--set", "train.global_batch_size=64"};
    ASSERT_EQ(run(job, task + "1", steps).exit_code, 0);
    const Result three = ranks(3, job, folder_ / (task + "2"), steps);
    ASSERT_EQ(three.exit_code, 0) << three.err;
    expect_equal_losses(folder_ / (task + "1/metrics.jsonl"), folder_ / (task + "2/metrics.jsonl"), 1e-9);
    copy_without_the_end(folder_ / (task + "1"), folder_ / (task + "3"));
    const Result resumed = run(job, task + "3", steps);
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(losses_of(folder_ / (task + "1")), losses_of(folder_ / (task + "3")));
    // What the model gave before training is kept, and computed again where it is lost.
    const auto questions = [&](const std::string& name) {
      const std::string log = read_file(folder_ / name + "/logs/rank_0000.log"),
                        said = "computes log-probabilities of ";
      int count = 0;
      for (size_t at = log.find(said); at != std::string::npos; at = log.find(said, at + 1)) ++count;
      return count;
    };
    EXPECT_EQ(questions(task + "1"), 2);  // train and val
    EXPECT_EQ(questions(task + "3"), 2);  // not again by the second attempt, whose log follows that of the first
    EXPECT_THAT(read_file(folder_ / task + "1/logs/rank_0000.log"), Not(HasSubstr("has no effect")));
    std::filesystem::remove(folder_ / (task + "3/reference.safetensors"));
    const Result replayed = gputrain({"replay", folder_ / (task + "3"), "--step", "15"}, kOneThread);
    EXPECT_EQ(replayed.exit_code, 0) << replayed.out << replayed.err;
    const Result evaluated = gputrain({"eval", job, "--output-dir", folder_ / (task + "3"), "--json", "--set",
                                       "train.max_steps=20", "--set", "train.global_batch_size=64"},
                                      kOneThread);
    ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
    EXPECT_NEAR(Json::parse(evaluated.out)["val/loss"].get<double>(), metrics(task + "1")["val/loss"].get<double>(),
                1e-9);
  }
}

TEST_F(Preferences, AskTheModelAgainThatBeginsOtherwise) {
  const std::string job = write_job("{type: dpo}");
  const std::vector<std::string> steps{"--set", "train.max_steps=1", "--set", "checkpoint.interval=100"};
  ASSERT_EQ(run(job, "first", steps).exit_code, 0);
  std::filesystem::create_directory(folder_ / "second");
  std::filesystem::copy(folder_ / "first/reference.safetensors", folder_ / "second/reference.safetensors");
  std::vector<std::string> other = steps;
  other.insert(other.end(), {"--set", "seed=4"});
  const Result second = run(job, "second", other);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("computes log-probabilities of 385 samples of data.train"));
  EXPECT_NEAR(losses_of(folder_ / "second")[0], std::log(2.0),
              1e-6);  // before the first step, the model is the reference
}

TEST_F(Preferences, OfTextsWithClassesAGptLearnsByItsHead) {
  std::string lines;
  for (int i = 0; i < 64; ++i)
    lines += Json{{"text", pair_of(i)["prompt"]}, {"label", pair_of(i)["chosen"]}}.dump() + "\n";
  write_job("{type: dpo}");
  folder_.write("classes.jsonl", lines);
  const std::string job = folder_.write("classes.yaml", R"(
seed: 3
device: cpu
model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 32, block_size: 16, head: classifier}}
data: {train: {path: )" + (folder_ / "classes.jsonl") + R"(, format: jsonl}, val: {path: )" +
                                                            (folder_ / "classes.jsonl") +
                                                            R"(, format: jsonl}, text: {tokenizer: words}}
train: {max_steps: 60, global_batch_size: 16}
optimizer: {type: adamw, lr: 0.005}
)");
  const Result result = run(job, "classes");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GE(metrics("classes")["val/accuracy"].get<double>(), 95);
  const Result predicted = gputrain({"predict", folder_ / "classes", folder_ / "classes.jsonl"}, kOneThread);
  EXPECT_EQ(predicted.exit_code, 0) << predicted.err;
  EXPECT_THAT(predicted.out, HasSubstr("a colour\t0."));
  EXPECT_THAT(gputrain({"generate", folder_ / "classes", "--prompt", "red"}).err,
              HasSubstr("gives a class, and generate is for models that continue texts"));
}

TEST_F(Preferences, OfPlainTextsUseNoChatTemplate) {
  const std::string job = write_job("{type: dpo}");
  const Result plain = run(job, "run", {"--set", "train.max_steps=1", "--set", "data.text.chat_template=chatml"});
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_THAT(plain.err, ::testing::HasSubstr("data.text.chat_template writes none of the texts"));
  EXPECT_THAT(plain.out, ::testing::AllOf(::testing::HasSubstr(" generate " + (folder_ / "run")),
                                          ::testing::Not(::testing::HasSubstr("--chat"))));
}

TEST_F(Preferences, SayWhatIsWrongWithARecord) {
  const std::string job = write_job("{type: dpo}");
  folder_.write("seen.jsonl", pair_of(0).dump() + "\n" + R"({"prompt": "red", "chosen": " a colour"})" + "\n");
  const Result result = run(job, "run");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("seen.jsonl:2"));
  EXPECT_THAT(result.err, HasSubstr("no 'rejected'"));
  EXPECT_THAT(run(write_job("{type: reward}"), "run", {"--set", "data.text.packing=true"}).err,
              HasSubstr("a row of its own"));
}

}  // namespace
}  // namespace gputrain::testing_support
