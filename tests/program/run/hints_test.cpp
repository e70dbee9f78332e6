// Each suggestion about a mistake in a job is applied, and must then be valid itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "../../../src/job/foreign/moving.hpp"
#include "gputrain/config/problem.hpp"
#include "gputrain/config/value_type.hpp"
#include "gputrain/job/job.hpp"
#include "support/program.hpp"

namespace gputrain::app {
namespace {

using config::Key;
using config::Schema;
using config::ValueType;
using Words = std::vector<std::string>;

constexpr const char* kSoundJob =
    "model: {type: gpt, adapter: {rank: 8}}\n"
    "data: {train: {path: x, format: text}, val: {split: 10%}}\n"
    "train: {max_steps: 10, global_batch_size: 1, ema: {decay: 0.9}}\n"
    "eval: {early_stopping: {patience: 3}, sample: {top_k: 3}}\n"
    "limits: {price_per_hour: 1, max_cost: 5}\n";

/// Returns the mistakes of the good job with these settings, and with more lines; empty: it is valid.
std::vector<config::Problem> mistakes_with(const Words& set, const std::string& more = {}) {
  try {
    config::load(job_schema(), {.file = "job.yaml", .text = kSoundJob + more, .set = set});
    return {};
  } catch (const config::SpecError& error) {
    return error.problems();
  }
}

/// Tells the mistakes. With `values`, without those against rules between keys: there the user's own value is wrong,
/// under any name.
std::string told(const std::vector<config::Problem>& problems, bool values = false) {
  static const std::regex of_rule(R"(^[a-z_.0-9\[\]]+: (?!no \w+ is named))");
  std::string text;
  for (const auto& problem : problems) {
    if (values && std::regex_search(problem.what, of_rule)) continue;
    text += problem.location.to_string() + ": " + problem.what + " = " + problem.hint + "\n";
  }
  return text;
}

std::optional<std::string> found(const std::string& text, const char* pattern) {
  std::smatch match;
  if (!std::regex_search(text, match, std::regex(pattern))) return std::nullopt;
  return match[1].str();
}

/// Returns the settings that a hint proposes in the place of `dotted`; none: it proposes none.
Words proposed(const std::string& hint, const std::string& dotted) {
  const std::string group = dotted.substr(0, dotted.rfind('.') + 1), name = dotted.substr(group.size());
  static const std::regex pattern("^(?:, and )?(?:under `([^`]+):` )?write `(--set )?([^`]+)`( at the top level)?");
  Words settings;
  std::string rest = hint;
  for (std::smatch match; std::regex_search(rest, match, pattern); rest = match.suffix()) {
    std::string line = match[3];
    if (!match[2].matched) {
      std::string key = match[1].matched ? std::regex_replace(match[1].str(), std::regex(": "), ".") + "." : "";
      const size_t colon = line.find(": ");
      if (match[1].matched || match[4].matched) {
        line = key + line.replace(colon, 2, "=");
      } else {
        line = dotted + "=" + (line.starts_with(name + ": ") ? line.substr(name.size() + 2) : line);
      }
    }
    settings.push_back(line);
  }
  return settings;
}

/// Walks mistakes: settings beside the good job. Each gets at most one.
class Walk {
 public:
  /// Makes a mistake and applies what is suggested.
  void make(const std::string& dotted, const std::string& value) {
    if (!made_.insert(dotted + "=" + value).second) return;
    const auto mistakes = mistakes_with({dotted + "=" + value});
    if (mistakes.size() != 1) return;
    apply(mistakes.front(), dotted, value);
  }
  /// Makes a mistake at the top of the file.
  void make_in_file(const std::string& key, const std::string& value) {
    const auto mistakes = mistakes_with({}, key + ": " + value + "\n");
    if (mistakes.size() == 1) apply(mistakes.front(), key, value);
  }
  /// Makes a mistake in the name of a key, and takes the one that was meant.
  void misspell(const std::string& group, const std::string& name, const std::string& value) {
    const auto mistakes = mistakes_with({group + name + "=" + value});
    const auto meant = mistakes.size() == 1 ? found(mistakes.front().hint, "^did you mean '([^']+)'\\?") : std::nullopt;
    if (!meant) return;
    ++applied_;
    const std::string key = meant->find('.') == std::string::npos ? group + *meant : *meant;
    EXPECT_EQ(told(mistakes_with({key + "=" + value})), "") << group << name << "=" << value;
  }
  /// Makes a mistake in the name of an entry.
  void misspell_entry(const std::string& dotted, const std::string& entry) {
    const auto mistakes = mistakes_with({dotted + "=" + entry});
    const auto meant = mistakes.size() == 1 ? found(mistakes.front().hint, "^did you mean '([^']+)'\\?") : std::nullopt;
    if (!meant) return;
    ++applied_;
    EXPECT_EQ(told(mistakes_with({dotted + "=" + *meant})), "") << dotted << "=" << entry;
  }
  int applied() const { return applied_; }

 private:
  void apply(const config::Problem& mistake, const std::string& dotted, const std::string& value) {
    const Words settings = proposed(mistake.hint, dotted);
    if (settings.empty() || std::ranges::any_of(settings, [](const auto& one) { return one.find("...") != one.npos; }))
      return;
    ++applied_;
    EXPECT_EQ(told(mistakes_with(settings), /*values=*/true), "")
        << dotted << "=" << value << ": " << mistake.what << " = " << mistake.hint;
  }

  std::set<std::string> made_;
  int applied_ = 0;
};

const Words kValues{"null", "true",  "0.1",   "5",      "10%", "epoch",   "all",
                    "16",   "adamw", "wandb", "[1, 2]", "gpu", "offload", "LlamaForCausalLM"};

/// Calls `see` for every key of the schema and of the entries that its keys pick.
template <class See>
void each_key(const Schema& schema, const std::string& group, const See& see, int depth = 0) {
  if (depth > 6) return;
  for (const Key& key : schema.keys()) {
    see(group, key);
    const ValueType* type = &key.type();
    while (type->kind == ValueType::Kind::optional) type = type->inner;
    if (type->kind == ValueType::Kind::group) each_key(type->schema(), group + key.name() + ".", see, depth + 1);
    const Schema::ChoiceKey* choice = schema.choice_of(key);
    if (choice == nullptr) continue;
    for (const auto& entry : choice->catalog->entries())
      each_key(*entry.schema, group + (choice->under.empty() ? "" : choice->under + "."), see, depth + 1);
  }
}

TEST(Hints, StandBesideAPluginThatIsMissing) {
  const testing_support::TemporaryFolder folder;
  const std::string job = folder.write("job.yaml",
                                       "plugins: [nowhere.so]\nsed: 3\nmodel: {type: of_plugin, config: {its_own: 1}}\n"
                                       "data: {train: {path: x, format: text}}\ntrain: {max_step: 1}\n");
  const testing_support::Result result = testing_support::gputrain({"validate", job});
  EXPECT_EQ(result.exit_code, 2);
  for (const char* told :
       {"3 mistakes", "plugins[0]: nowhere.so: no such file", "did you mean 'seed'?", "did you mean 'max_steps'?"})
    EXPECT_THAT(result.err, ::testing::HasSubstr(told));
  EXPECT_THAT(result.err, ::testing::Not(::testing::HasSubstr("of_plugin'")));
}

/// Returns what `validate` says of a job.
std::string verdict(const std::string& model, const std::string& lines) {
  const testing_support::TemporaryFolder folder;
  const std::string job = folder.write(
      "job.yaml", "model: " + model + "\ndata: {train: {path: x, format: jsonl}, val: {split: 10%}}\n" + lines);
  const testing_support::Result result = testing_support::gputrain({"validate", job});
  return result.out + result.err;
}

constexpr const char *kOfTexts = "{type: bert, config: {head: classifier}}", *kOfImages = "{type: resnet18}";

TEST(Hints, NameTheMetricOfTheTask) {
  using ::testing::HasSubstr;
  for (const auto& [model, metric] : {std::pair(kOfTexts, "accuracy"), {kOfImages, "top1"}}) {
    const std::string ours = std::string("checkpoint.metric: ") + metric;
    EXPECT_THAT(verdict(model, "train: {max_steps: 1, global_batch_size: 1}\nmetric_for_best_model: eval_accuracy\n"),
                HasSubstr(ours));
    EXPECT_THAT(verdict(model, "train: {max_steps: 1, global_batch_size: 1}\ncheckpoint: {monitor: val_acc}\n"),
                HasSubstr(ours));
    EXPECT_THAT(verdict(model, "train: {max_steps: 1, global_batch_size: 1}\ncheckpoint: {metric: eval_accuracy}\n"),
                HasSubstr(std::string("metric: ") + metric));
  }
}

TEST(Hints, RefuseAMetricThatTheTaskDoesNotMeasure) {
  using ::testing::HasSubstr;
  const auto with = [](const std::string& metric) {
    return "train: {max_steps: 1, global_batch_size: 1}\ncheckpoint: {metric: " + metric + "}\n";
  };
  EXPECT_THAT(verdict(kOfTexts, with("top1")), HasSubstr("'top1' is not measured by the task of this model"));
  EXPECT_THAT(verdict(kOfTexts, with("top1")), HasSubstr("metric: accuracy"));
  EXPECT_THAT(verdict("{type: gpt}", with("accuracy")), HasSubstr("one of loss, perplexity"));
  for (const char* metric : {"accuracy", "f1", "mcc", "loss"})
    EXPECT_THAT(verdict(kOfTexts, with(metric)), HasSubstr("valid, run id"));
  EXPECT_THAT(verdict(kOfImages, with("top1")), HasSubstr("valid, run id"));
}

TEST(Hints, TellWordsOfTheTrainerAtOnce) {
  using ::testing::HasSubstr;
  const std::string said =
      verdict(kOfTexts,
              "train: {max_steps: 1, global_batch_size: 1}\noptimizer: {type: adamw_torch, adam_beta1: 0.8, "
              "adam_epsilon: 1e-7}\n"
              "lr_scheduler: {type: cosine_with_restarts}\ncheckpoint: {greater_is_better: true}\n");
  EXPECT_THAT(said, HasSubstr("write `adamw`"));
  EXPECT_THAT(said, HasSubstr("write `cosine_restarts`"));
  EXPECT_THAT(said, HasSubstr("each metric knows which values are better"));
  EXPECT_THAT(said, HasSubstr("optimizer.betas: [0.9, 0.999] has both"));
  EXPECT_THAT(said, HasSubstr("adam_epsilon"));
  EXPECT_THAT(said, HasSubstr("5 mistakes"));
}

TEST(Hints, AboutTiedEmbeddingsHold) {
  const testing_support::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "tied");
  folder.write("tied/config.json",
               R"({"model_type": "llama", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 32,
                   "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64,
                   "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true})");
  const std::string job = folder.write("job.yaml",
                                       "device: cpu\ndata: {train: {format: synthetic, vocab_size: 32, samples: 8}}\n"
                                       "train: {max_steps: 1, global_batch_size: 1}\nmodel: {type: gpt, pretrained: " +
                                           (folder / "tied") + "}\n");
  const auto tried = [&](const std::string& key, const Words& names) {
    return testing_support::gputrain({"run", job, "--dry-run", "--output-dir", folder / "run", "--set",
                                      "model.adapter." + key + "=[" + fmt::format("{}", fmt::join(names, ", ")) + "]"});
  };
  for (const char* key : {"modules_to_save", "target_modules"}) {
    Words names{"lm_head", "embed_tokens"};
    while (!names.empty()) {
      const std::string refused = tried(key, names).err;
      const auto name = found(refused, "try: leave (\\w+) out: ");
      ASSERT_TRUE(name) << key << ": " << refused;
      ASSERT_EQ(std::erase(names, *name), 1U) << refused;
    }
    EXPECT_EQ(tried(key, names).exit_code, 0) << key;
  }
}

TEST(Hints, GoodJobIsGood) { EXPECT_EQ(told(mistakes_with({})), ""); }

TEST(Hints, AboutNamesOfOtherProgramsHold) {
  Walk walk;
  each_key(job_schema(), "", [&](const std::string& group, const Key& key) {
    for (const auto& foreign : key.foreign_names()) {
      walk.make(group + foreign.name, "5");
      for (const std::string& value : kValues) walk.make(foreign.name, value);
    }
  });
  EXPECT_GT(walk.applied(), 100);
}

TEST(Hints, AboutKeysOfOtherToolsHold) {
  Walk walk;
  for (const foreign::Tool& tool : foreign::tools())
    for (const foreign::Table* table : tool.tables)
      for (const foreign::Row& row : *table)
        for (const std::string& name : row.names)
          for (const std::string& value : kValues) {
            if (name.ends_with('*')) continue;
            walk.make(name, value);
            if (name.find('.') == std::string::npos) walk.make_in_file(name, value);
          }
  EXPECT_GT(walk.applied(), 300);
}

TEST(Hints, AboutMisplacedKeysHold) {
  Walk walk;
  each_key(job_schema(), "", [&](const std::string&, const Key& key) {
    for (const char* value : {"5", "0.1", "true", "x", "[0.08, 1.0]"}) walk.make(key.name(), value);
    for (const char* group : {"model.", "data.", "train."}) walk.make(group + key.name(), "5");
  });
  EXPECT_GT(walk.applied(), 100);
}

TEST(Hints, AboutValuesHold) {
  Walk walk;
  each_key(job_schema(), "", [&](const std::string& group, const Key& key) {
    for (const std::string& value : kValues) walk.make(group + key.name(), value);
  });
  EXPECT_GT(walk.applied(), 30);
}

TEST(Hints, AboutMisspeltKeysAndEntriesHold) {
  Walk walk;
  const auto loaded = config::load(job_schema(), {.file = "job.yaml", .text = kSoundJob});
  for (const auto& setting : loaded.settings()) {
    const std::string group = setting.key.substr(0, setting.key.rfind('.') + 1),
                      name = setting.key.substr(group.size());
    if (!mistakes_with({setting.key + "=" + setting.value}).empty()) continue;  // a masked value
    walk.misspell(group, name + name.back(), setting.value);
    walk.misspell(group, name.substr(0, name.size() - 1), setting.value);
  }
  EXPECT_GT(walk.applied(), 200);
  Walk entries;
  for (const char* key :
       {"optimizer.type", "lr_scheduler.type", "model.adapter.type", "model.quantize.type", "model.type"})
    for (const char* entry : {"adamww", "adamw8bits", "cosin", "lorra", "nf5", "gptt", "LlamaForCausalLM", "ViTModel"})
      entries.misspell_entry(key, entry);
  EXPECT_GE(entries.applied(), 6);
}

}  // namespace
}  // namespace gputrain::app
