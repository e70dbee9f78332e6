// The table of what does not go together: its page, what a job has, and whether what it allows can be built.
#include "gputrain/setup/compatibility.hpp"

#include <algorithm>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string committed_page() {
  std::ifstream file(GPUTRAIN_SOURCE_DIR "/configs/compatibility.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

using Settings = std::vector<std::string>;

Settings joined(Settings first, const Settings& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

/// A decoder of Llama's layout, trained by a rule that takes anything.
const Settings kDecoder{
    "model.type=gpt",
    "model.config={n_layer: 4, n_head: 4, n_embd: 32, block_size: 16, vocab_size: 67, position: rotary, norm: rmsnorm, "
    "activation: swiglu, tie_embeddings: false}",
    "data.train={format: synthetic, samples: 64, vocab_size: 67}",
    "train={max_steps: 2, global_batch_size: 32}",
    "optimizer={type: sgd, lr: 0.1}",
    "log.tensorboard=true"};
const Settings kImages{"data={train: {format: synthetic, samples: 64, num_classes: 2}, image: {size: 16}}",
                       "train={max_steps: 2, global_batch_size: 32}"};

Job job_of(const Settings& base, const Settings& more = {}) {
  return load_job({.file = {}, .set = joined(base, more)});
}

/// What is wrong with a job; empty: nothing.
std::vector<config::Problem> problems_of(const Job& job) {
  try {
    check_compatibility(job);
    return {};
  } catch (const config::SpecError& error) {
    return error.problems();
  }
}

/// Settings that each switch on a feature, or features that go with it.
const std::vector<Settings> kSwitches{{"parallel.tensor=2"},
                                      {"parallel.pipeline=2"},
                                      {"parallel.virtual_stages=2"},
                                      {"parallel.context=2"},
                                      {"parallel.shard=optimizer"},
                                      {"parallel.shard=gradients"},
                                      {"parallel.shard=parameters"},
                                      {"parallel.replicate=2"},
                                      {"parallel.compress=bf16"},
                                      {"optimizer.type=adamw8bit"},
                                      {"optimizer.type=adamw"},
                                      {"optimizer.type=adamw", "optimizer.averages=bf16"},
                                      {"optimizer.type=schedule_free_adamw"},
                                      {"optimizer.master=bf16"},
                                      {"train.ema.decay=0.9"},
                                      {"train.swa.start=75%"},
                                      {"lr_scheduler.type=plateau"},
                                      {"data.val.split=25%"},
                                      {"precision=bf16"},
                                      {"precision=fp16"},
                                      {"precision=fp64"},
                                      {"train.activation_checkpointing=block"},
                                      {"train.activation_checkpointing=selective"},
                                      {"train.offload.activations=true"},
                                      {"train.offload.optimizer=true"},
                                      {"train.micro_batch_size=auto"},
                                      {"data.text.packing=true"},
                                      {"alloc_conf=expandable_segments:True"},
                                      {"device=cpu"},
                                      {"model.pretrained=/there/is/none.safetensors"},
                                      {"model.adapter.type=lora"},
                                      {"model.freeze=['*norm*']"},
                                      {"eval.sample.prompt=a"},
                                      {"eval.sample.messages=[a]"},
                                      {"model.config.tie_embeddings=true"},
                                      {"model.config.dropout=0.1"},
                                      {"model.config.qk_norm=true", "model.config.qk_norm_across_heads=true"},
                                      {"model.config.n_expert=4"}};

std::string key_of(const Settings& settings) { return settings.front().substr(0, settings.front().find('=')); }

/// The committed page: how many rows are about a feature of each of two sets.
class Table {
 public:
  Table() {
    std::istringstream page(committed_page());
    for (std::string line; std::getline(page, line);) {
      std::erase(line, '`');
      std::smatch row;
      static const std::regex pattern(R"(\| (.+?) \| (does not go with|needs) (.+?) \| .+ \| .+ \|)");
      if (std::regex_match(line, row, pattern)) rows_.push_back({row[1], row[2], row[3]});
    }
  }

  int count(const Features& some, const Features& others, const std::string& relation) const {
    return static_cast<int>(std::ranges::count_if(rows_, [&](const Row& row) {
      return row.relation == relation && ((some.contains(row.one) && others.contains(row.other)) ||
                                          (some.contains(row.other) && others.contains(row.one)));
    }));
  }

 private:
  struct Row {
    std::string one, relation, other;  // `other` has more words where a third feature is needed
  };
  std::vector<Row> rows_;
};

Features without(Features features, const Features& others) {
  for (const std::string& other : others) features.erase(other);
  return features;
}

TEST(Compatibility, HasRulesOfFeaturesThatThereAre) {
  const auto names = all_features();
  const Features known(names.begin(), names.end());
  EXPECT_EQ(known.size(), names.size());
  for (const CompatibilityRule& rule : compatibility_rules()) {
    for (const std::string& name : {rule.one, rule.other}) EXPECT_TRUE(known.contains(name)) << name;
    EXPECT_TRUE(rule.and_also.empty() || known.contains(rule.and_also)) << rule.and_also;
  }
}

// The page is what happens: a job with two features has the mistakes of each, one for each row where they do not go
// together, and none where one has what the other needs.
TEST(Compatibility, IsTheSameForEveryPair) {
  const Table table;
  const Features base = features_of(job_of(kDecoder).spec());
  ASSERT_TRUE(problems_of(job_of(kDecoder)).empty());
  std::vector<Features> gained;
  std::vector<int> alone;
  for (const Settings& one : kSwitches) {
    const Job job = job_of(kDecoder, one);
    gained.push_back(without(features_of(job.spec()), base));
    EXPECT_FALSE(gained.back().empty()) << one.front();
    EXPECT_TRUE(without(base, features_of(job.spec())).empty()) << one.front();
    alone.push_back(static_cast<int>(problems_of(job).size()));
  }
  int refused = 0, pairs = 0;
  for (size_t i = 0; i < kSwitches.size(); ++i) {
    for (size_t j = i + 1; j < kSwitches.size(); ++j) {
      if (key_of(kSwitches[i]) == key_of(kSwitches[j])) continue;
      const int clashes = table.count(gained[i], gained[j], "does not go with");
      const int met = table.count(gained[i], gained[j], "needs");
      const Job job = job_of(kDecoder, joined(kSwitches[i], kSwitches[j]));
      EXPECT_EQ(static_cast<int>(problems_of(job).size()), alone[i] + alone[j] + clashes - met)
          << kSwitches[i].front() << " and " << kSwitches[j].front();
      ++pairs;
      refused += clashes > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(pairs, 500);
  EXPECT_GT(refused, 15);
}

// What the table allows can be laid out on ranks.
TEST(Compatibility, AllowsWhatCanBeBuilt) {
  const std::set<std::string> not_here{"model.pretrained", "model.adapter.type", "train.micro_batch_size",
                                       "data.text.packing"};  // they need files, other data, or other ranks
  for (size_t i = 0; i < kSwitches.size(); ++i) {
    for (size_t j = i; j < kSwitches.size(); ++j) {
      const std::string one = key_of(kSwitches[i]), other = key_of(kSwitches[j]);
      if (not_here.contains(one) || not_here.contains(other) || (i != j && one == other)) continue;
      const Settings passes{"train.gradient_accumulation_steps=2"};  // as virtual stages need
      const Job job = job_of(kDecoder, joined(passes, joined(kSwitches[i], kSwitches[j])));
      if (!problems_of(job).empty()) continue;
      const auto build = [&] {
        TrainingSetup(
            job, simulate_rank(job, {.rank = 0, .world_size = 8}, std::make_shared<comm::CollectiveTraffic>()),
            [&] { return open_datasets(job); }, 0, Weights::sizes);
      };
      EXPECT_NO_THROW(build()) << kSwitches[i].front() << " and " << kSwitches[j].front();
    }
  }
}

TEST(Compatibility, NamesAllReasonsAtOnceEachAtItsKey) {
  const Job job = job_of(kDecoder, {"parallel.tensor=2", "parallel.pipeline=2", "parallel.shard=gradients",
                                    "optimizer.type=adamw8bit", "eval.sample.prompt=a"});
  const auto problems = problems_of(job);
  ASSERT_EQ(problems.size(), 3u);
  std::multiset<std::string> places;
  for (const auto& one : problems) places.insert(one.location.to_string());
  EXPECT_EQ(places, (std::multiset<std::string>{"--set eval.sample.prompt", "--set parallel.pipeline",
                                                "--set parallel.tensor"}));
  EXPECT_THAT(problems.front().what, HasSubstr("adamw8bit updates whole matrices"));
}

TEST(Compatibility, HasRulesForThreeFeatures) {
  const Settings tied{"model.config.tie_embeddings=true", "parallel.pipeline=2"},
      whole{"optimizer.type=adamw8bit", "parallel.pipeline=2"};
  EXPECT_TRUE(problems_of(job_of(kDecoder, tied)).empty());
  EXPECT_EQ(problems_of(job_of(kDecoder, joined(tied, {"parallel.shard=parameters"}))).size(), 1u);
  EXPECT_TRUE(problems_of(job_of(kDecoder, whole)).empty());
  EXPECT_EQ(problems_of(job_of(kDecoder, joined(whole, {"parallel.shard=optimizer"}))).size(), 1u);
}

TEST(Compatibility, GoesByWhatTheModelCanDo) {
  const auto refused = [&](const std::string& model, const Settings& settings) {
    const auto problems = problems_of(job_of(joined({"model.type=" + model}, kImages), settings));
    return problems.size() == 1 ? problems.front().what : std::to_string(problems.size());
  };
  for (const char* key : {"parallel.tensor", "parallel.pipeline", "parallel.context"})
    EXPECT_THAT(refused("mlp", {key + std::string("=2")}),
                AllOf(HasSubstr(key), HasSubstr("a model of type gpt that learns the next token")));
  const std::string how = "train.activation_checkpointing=";
  EXPECT_THAT(refused("mlp", {how + "block"}), HasSubstr("mlp has no blocks to recompute"));
  EXPECT_THAT(refused("convnet", {how + "selective"}), HasSubstr("convnet has nothing that is cheap to recompute"));
  EXPECT_EQ(refused("convnet", {how + "block"}), "0");
  EXPECT_EQ(refused("convnet", {"parallel.shard=parameters"}), "0");
  const auto classifies = problems_of(job_of(kDecoder, {"model.config.head=classifier", "parallel.tensor=2"}));
  EXPECT_EQ(classifies.size(), 1u);
}

TEST(Compatibility, GoesByWhatTheTaskTakes) {
  const auto refused = [&](const Settings& settings) {
    const auto problems = problems_of(job_of(kDecoder, settings));
    return problems.size() == 1 ? problems.front().what : std::to_string(problems.size());
  };
  EXPECT_THAT(refused({"task.type=dpo", "parallel.pipeline=2"}), HasSubstr("that learns the next token"));
  EXPECT_THAT(refused({"task.type=reward", "model.config.head=classifier", "data.text.packing=true"}),
              HasSubstr("reward reads each text in a row of its own"));
}

TEST(Compatibility, SaysWhatIsGivenUpOnTheseRanks) {
  const auto why = [](const Settings& settings, const comm::Mesh& mesh) {
    return why_given_up("train.cuda_graphs: auto", job_of(kDecoder, settings).spec(), mesh);
  };
  EXPECT_THAT(why({"parallel.shard=parameters"}, {.ranks = 2}), HasSubstr("parallel.shard: parameters"));
  EXPECT_EQ(why({"parallel.shard=parameters"}, {.ranks = 1}), "");
  EXPECT_EQ(why({"parallel.shard=parameters"}, {.ranks = 2, .tensor = 2}), "");
  EXPECT_THAT(why({"parallel.pipeline=2"}, {.ranks = 2, .pipeline = 2}), HasSubstr("stages of a pipeline"));
  EXPECT_THAT(why({"train.offload.optimizer=true"}, {.ranks = 1}), HasSubstr("optimizer's state is copied"));
  EXPECT_EQ(why({}, {.ranks = 4}), "");
}

}  // namespace
}  // namespace gputrain::app
