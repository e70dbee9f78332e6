#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <regex>
#include <set>
#include <sstream>

#include "../../../src/cli/commands.hpp"
#include "config/bad_values.hpp"
#include "gputrain/config/problem.hpp"
#include "gputrain/config/reference.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(JobSchema, HasSoundTables) { EXPECT_EQ(config::faults_of(job_schema()), std::vector<std::string>{}); }

/// Returns the full names of all keys of configs/keys.md, those of entries once for each place that picks them.
std::vector<std::string> keys_of_page() {
  static const std::regex code("`([^`]+)`"), row("^\\| `([^`]+)` \\| ");
  std::istringstream lines(config::keys_page(job_schema()));
  std::vector<std::string> keys, groups;
  bool is_of_keys = false;  // other tables have entries
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) groups = {""};
    if (line.starts_with("Picked by ")) {
      groups.clear();
      const size_t inside = line.find("Options stand in ");
      const std::string names = inside == std::string::npos ? line : line.substr(inside);
      for (std::sregex_iterator match(names.begin(), names.end(), code), end; match != end; ++match) {
        std::string group = (*match)[1].str();
        group = inside == std::string::npos ? group.substr(0, group.rfind('.') + 1) : group + ".";
        groups.push_back(group == "layers[]." ? "model.config." + group : group);  // a model picks them
      }
    }
    is_of_keys = line.starts_with("| key ") || (is_of_keys && line.starts_with("|"));
    if (std::smatch match; is_of_keys && std::regex_search(line, match, row))
      for (const std::string& group : groups) keys.push_back(group + match[1].str());
  }
  return keys;
}

TEST(JobSchema, IsDescribedKeyByKey) {
  const std::vector<std::string> keys = keys_of_page();
  for (const char* key :
       {"lr_scheduler.warmup", "lr_scheduler.interval", "model.adapter.groups[].rank", "task.config.beta",
        "model.config.layers[].kernel_size", "data.val.prefix", "alerts[].metric"})
    EXPECT_NE(std::ranges::find(keys, key), keys.end()) << key;
  for (const std::string& key : keys) {
    ::testing::internal::CaptureStdout();
    std::string refusal;
    try {
      describe_command(key, "", "", {});
    } catch (const std::exception& error) {
      refusal = error.what();
    }
    const std::string text = ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(refusal, "") << key;
    EXPECT_THAT(text, HasSubstr(key.substr(key.rfind('.') + 1))) << key;
  }
}

constexpr const char* kGoodJob =
    "model: {type: mlp}\n"
    "data: {train: {path: x, format: text}}\n"
    "train: {max_steps: 1, global_batch_size: 1}\n";

TEST(JobSchema, RejectsBadValuesOfEveryKey) {
  const auto bad_values = config::BadValues::of(job_schema());
  EXPECT_GT(bad_values.size(), 300U);
  for (const auto& bad : bad_values) {
    EXPECT_TRUE(config::is_refused(job_schema(), {.file = "job.yaml", .text = kGoodJob}, bad)) << bad.set.back();
  }
}

std::string refusal(const std::string& more, const std::vector<std::string>& set = {}) {
  try {
    config::load(job_schema(), {.file = "job.yaml", .text = kGoodJob + more, .set = set});
  } catch (const config::SpecError& error) {
    return error.render(false);
  }
  return "accepted";
}

TEST(JobSchema, TellsTheLineOfAMistakeInAnElementOfAList) {
  const std::string alerts = "alerts:\n  - {metric: train/loss, op: '>', value: 3}\n  - {metric: nonsense, value: 3}\n";
  EXPECT_THAT(refusal(alerts), HasSubstr("job.yaml:6:14: alerts[1].metric: 'nonsense' is not measured"));
  EXPECT_THAT(refusal("alerts: [{metric: train/loss, value: 3, action: exec}]\n"),
              HasSubstr("job.yaml:4:10: alerts[0].exec: is missing"));
}

TEST(JobSchema, AnswersWordsOfOtherTools) {
  const std::pair<const char*, const char*> answers[]{
      {"bf16: true", "is `precision: bf16` here"},
      {"dtype: bfloat16", "is `precision: bf16` here"},
      {"precision: 16-mixed", "write `fp16`"},
      {"precision: float32", "write `fp32`"},
      {"device: gpu", "write `cuda`"},
      {"gradient_checkpointing: true", "write `activation_checkpointing: block`"},
      {"devices: 2", "write `nproc_per_node: 2`"},
      {"out_dir: x", "is `output_dir: x` here"},
      {"default_root_dir: x", "is `output_dir: x` here"},
      {"eval_strategy: epoch", "write `interval: 1ep`"},
      {"save_strategy: steps", "needs no line here"},
      {"check_val_every_n_epoch: 2", "write `interval: 2ep`"},
      {"limits: {max_duration: 2hours}", "write `2h`"},
      {"seed_everything: 1", "is `seed: 1` here"},
      {"steps: 10", "write `max_steps: 10`"},
      {"training: {steps: 10}", "did you mean 'train'?"},
      {"strategy: ddp", "leave it out: ranks connect by themselves"},
      {"enable_checkpointing: true", "leave it out: checkpoint.interval says how often"},
      {"trainer: {accelerator: gpu, devices: 2, max_epochs: 3}", "accelerator is `device`"},
      {"train_file: a.txt", "write `data: {train: {path: ..., format: ...}}`"},
      {"eval_iters: 200", "leave it out: all of data.val is evaluated"},
      {"lr_step_size: 30", "is `lr_scheduler.step_size: 30` here"},
      {"report_to: wandb", "is `log.sinks: [jsonl, console, wandb]` here"},
      {"wandb: {project: x}", "belongs under 'log'"},
      {"resume_from_checkpoint:", "needs no line here"},
      {"metric_for_best_model: eval_loss", "is `checkpoint.metric: loss` here"},
      {"lora_target: all", "write `target_modules: all-linear`"},
      {"model_type: LlamaForCausalLM", "did you mean 'gpt'"},
      {"gradient_checkpointing: offload", "write `activation_checkpointing: block`"},
      {"optimizer: paged_adamw_8bit", "write `optimizer: {type: adamw8bit}`"},
      {"optimizer: adamw_torch_fused", "write `optimizer: {type: adamw}`"},
      {"scale: [0.08, 1.0]", "unknown key 'scale'\n   4 | scale: [0.08, 1.0]\n     | ^^^^^\n     = the keys here are"},
      {"unheard_of: 1", "the keys here are alerts, alloc_conf, checkpoint, "},
      {"defaults: &d {lr: 1}", "under `vars:`"},
  };
  for (const auto& [line, answer] : answers) EXPECT_THAT(refusal(line), HasSubstr(answer)) << line;
  const std::pair<const char*, const char*> settings[]{
      {"data.val.split=0.1", "write `10%`"},
      {"model.name=resnet50", "write `--set model.type=resnet50`"},
      {"model.arch=resnet50", "write `--set model.type=resnet50`"},
      {"data.val.split=15", "write `15%`"},
      {"data.train.resize=64", "write `--set data.image.size=64`"},
      {"train.activation_checkpointing=true", "write `block`"},
      {"data.drop_last=true", "`data.last: drop`"},
      {"model.pretrained=true", "a name on the Hub that `gputrain fetch` has brought here"},
      {"model.pretrained=false", "null, for none"},
      {"train.early_stopping=true", "write `--set eval.early_stopping.patience=3`"},
      {"data.image.augment.reprob=0.25", "write `--set data.image.augment.random_erasing.probability=0.25`"},
      {"data.image.augment.random_erasing=0.25", "{probability: 0.25}`"},
      {"optimizer.lr=", "--set optimizer.lr: there is no value after the '='"},
  };
  for (const auto& [setting, answer] : settings) EXPECT_THAT(refusal("", {setting}), HasSubstr(answer)) << setting;
  for (const char* senseless : {"200", "0", "-5", "100"}) {
    const std::string text = refusal("", {"data.val.split=" + std::string(senseless)});
    EXPECT_THAT(text, Not(AnyOf(HasSubstr("write `"), HasSubstr("2 mistakes")))) << senseless;
  }
}

TEST(JobSchema, AnswersOtherWordsWhenNoTypeIsPicked) {
  constexpr const char* kText =
      "model: {name: mlp, hiden: [8]}\ndata: {train: {type: text, path: x}, val: {type: idx}}\n";
  try {
    config::load(job_schema(), {.file = "job.yaml", .text = kText});
    FAIL() << "accepted";
  } catch (const config::SpecError& error) {
    for (const char* answer :
         {"6 mistakes", "`name: mlp` is `model.type: mlp` here", "did you mean 'model.config.hidden'?",
          "`type: text` is `data.train.format: text` here", "`type: idx` is `data.val.format: idx` here"}) {
      EXPECT_THAT(error.render(false), HasSubstr(answer));
    }
  }
}

TEST(JobSchema, ReplacesHomeFolderInEveryPath) {
  const auto environment = [](const std::string&) { return "/home/me"; };
  for (const char* key : {"output_dir", "data.train.path", "data.val.path", "data.test.path", "model.pretrained",
                          "checkpoint.mirror", "checkpoint.resume", "launch.hostfile"}) {
    const std::vector<std::string> set{std::string(key) + "=~/x"};
    const auto loaded =
        config::load(job_schema(), {.file = "job.yaml", .text = kGoodJob, .set = set, .environment = environment});
    EXPECT_THAT(loaded.resolved_yaml(true), HasSubstr(": /home/me/x  # --set " + std::string(key))) << key;
  }
}

TEST(JobSchema, SaysWhatToDoInsteadOfAnAddress) {
  const std::pair<const char*, const char*> answers[]{
      {"checkpoint.mirror=s3://bucket/ck", "`s3://bucket/ck` is an address"},
      {"output_dir=S3://bucket/run", "mount-s3 or rclone mount shows it, or one on a disk, copied by aws s3 sync"},
      {"data.train.path=gs://b/x.jsonl", "gcsfuse"},
      {"data.val.path=abfss://c@a.dfs.core.windows.net/x", "blobfuse2"},
      {"data.train.path=https://a.b/x.zip", "download it first"},
      {"model.pretrained=https://huggingface.co/org/name/tree/main", "`gputrain fetch org/name`, then give the name"},
      {"model.pretrained=hf://org/name", "`gputrain fetch org/name`"},
      {"data.train.path=hf://datasets/org/name", "download it first"},
      {"data.train.path=file:///data/x.txt", "write the path alone: /data/x.txt"},
      {"data.train.path=file://data/x.txt", "write the path alone: data/x.txt"},
      {"plugins=[hdfs://x/y.so]", "plugins[0]: "},
  };
  for (const auto& [setting, answer] : answers) EXPECT_THAT(refusal("", {setting}), HasSubstr(answer)) << setting;
  EXPECT_THAT(refusal("include: ftp://host/base.yaml\n"), HasSubstr("include: `ftp://host/base.yaml` is an address"));
  for (const char* path : {"./s3://bucket", "s3:/bucket", "a/b://c", "://x", "1://x", "c:\\x"})
    EXPECT_EQ(refusal("", {"data.train.path=" + std::string(path)}), "accepted") << path;
  for (const char* address : {"log.webhook=https://hooks.example/x", "log.mlflow={uri: 'https://mlflow.example'}"})
    EXPECT_EQ(refusal("", {address}), "accepted");
}

void expect_paths_below(const nlohmann::ordered_json& node, std::set<std::string>& exempt) {
  static const std::regex word("\\b(file|folder|path)s?\\b");
  if (node.is_object() && node.contains("properties")) {
    for (const auto& [name, key] : node["properties"].items()) {
      const std::string text = key.dump(), help = key.is_object() ? key.value("description", "") : "";
      const bool is_text = text.find(R"("type":["string","number","boolean"])") != std::string::npos &&
                           text.find("\"properties\"") == std::string::npos;
      const bool is_path = text.find("://") != std::string::npos;
      if (!is_text || is_path || !std::regex_search(help, word)) continue;
      EXPECT_TRUE(exempt.contains(name)) << name << ": " << help << ": has no .path() in its description";
    }
  }
  for (const auto& part : node) {
    if (part.is_structured()) expect_paths_below(part, exempt);
  }
}

// Such a path is refused as an address: RejectsBadValuesOfEveryKey.
TEST(JobSchema, KnowsEveryPath) {
  // Patterns of files in a folder, names inside an archive, a name of a column, the run's.
  std::set<std::string> exempt{"include", "exclude", "prefix", "image", "name"};
  expect_paths_below(config::json_schema(job_schema(), "job"), exempt);
}

TEST(JobSchema, WritesNoSecretsDown) {
  const std::string env =
      "env: {DB_PASSWD: s3cret, PGPASS: s3cret, GH_PAT: s3cret, https_proxy: 'http://me:s3cret@proxy:1', LANG: C,\n"
      "  SLACK_WEBHOOK: 'https://hooks.slack.com/s3cret'}\n"
      "alerts: [{metric: time/step_seconds, value: 1, action: exec, exec: [curl, -H, 'Authorization: Bearer "
      "s3cret']}]\n"
      "log: {mlflow: {uri: 'https://s3cret@host'}}\n";
  const auto loaded = config::load(job_schema(), {.file = "job.yaml", .text = kGoodJob + env});
  EXPECT_EQ(loaded.as<JobSpec>().env.at("GH_PAT"), "s3cret");
  const std::string written = loaded.resolved_yaml();
  EXPECT_THAT(written, Not(HasSubstr("s3cret")));
  for (const char* kept : {"DB_PASSWD: \"***\"", "http://me:***@proxy:1", "LANG: C", "curl"})
    EXPECT_THAT(written, HasSubstr(kept));
  for (const auto& setting : loaded.settings()) EXPECT_THAT(setting.value, Not(HasSubstr("s3cret"))) << setting.key;
}

TEST(JobSchema, ShowsNoSecretsInErrors) {
  for (const char* line :
       {"env: {GH_PAT: s3cret, 1X: 2}", "env: GH_PAT=s3cret", "output_dir: ['http://a:s3cret@h']",
        "output_dir: 'https://a:s3cret@h'", "device: 'http://a:s3cret@h'", "sed: 'https://s3cret@h'"}) {
    EXPECT_THAT(refusal(line), AllOf(HasSubstr("mistake"), Not(HasSubstr("s3cret")))) << line;
  }
}

TEST(JobSchema, AcceptsOnlyNamesBelowRuns) {
  for (const char* name : {"..", ".", "../x", "a/../../x", "/tmp/x", "''", "~/x", "$HOME/x"})
    EXPECT_THAT(refusal("name: " + std::string(name)), HasSubstr("does not name a folder below runs/")) << name;
  for (const char* name : {"a", "..a", "sweep/a", "a b", "3"})
    EXPECT_EQ(refusal("name: " + std::string(name)), "accepted") << name;
  EXPECT_EQ(refusal("name: ../x\noutput_dir: y"), "accepted");
}

TEST(JobSchema, RejectsNumbersWhoseProductsOverflow) {
  for (const char* key : {"max_steps", "max_tokens", "global_batch_size", "micro_batch_size"}) {
    const std::string text = refusal("", {"train." + std::string(key) + "=9223372036854775807"});
    EXPECT_THAT(text, HasSubstr(key)) << text;
  }
}

}  // namespace
}  // namespace gputrain::app
