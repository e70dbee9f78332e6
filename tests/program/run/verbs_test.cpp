#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const std::vector<std::string>& words) {
  const Result result = gputrain(words);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, ::testing::StartsWith("error: "));
  return result.err;
}

TEST(ValidateVerb, ReportsAllMistakesWithPlaces) {
  const TemporaryFolder folder;
  const std::string job = folder.write("job.yaml",
                                       "model: {type: gptt}\n"
                                       "data: {train: {path: x, format: text}}\n"
                                       "train: {max_steps: -1, per_device_train_batch_size: 32}\n"
                                       "optimizer: {learning_rate: 0.1}\n");
  const Result result = gputrain({"validate", job});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("job.yaml:1:"));
  EXPECT_THAT(result.err, HasSubstr("job.yaml:3:"));
  EXPECT_THAT(result.err, HasSubstr("job.yaml:4:"));
  EXPECT_THAT(result.err, HasSubstr("micro_batch_size"));
  const Result json = gputrain({"validate", "--json", job});
  EXPECT_EQ(json.exit_code, 2);
  const auto report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report["valid"], false);
  EXPECT_GE(report["problems"].size(), 4U);
}

TEST(ProgramStart, SetsShortSpinForWaitingThreads) {
  const auto told_with = [](std::map<std::string, std::string> environment) {
    environment.emplace("OMP_DISPLAY_ENV", "verbose");
    return gputrain({"version"}, environment).err;
  };
  EXPECT_THAT(told_with({}), HasSubstr("GOMP_SPINCOUNT = '2000'"));
  EXPECT_THAT(told_with({{"GOMP_SPINCOUNT", "70"}}), HasSubstr("GOMP_SPINCOUNT = '70'"));
  EXPECT_THAT(told_with({{"OMP_WAIT_POLICY", "passive"}}), HasSubstr("GOMP_SPINCOUNT = '0'"));
}

/// A write behind a buffer ends the program, and tables of addresses cannot be written to.
TEST(ProgramStart, IsOfAHardenedProgram) {
  const std::filesystem::path program = gputrain_path();
  for (const auto& file : {program, program.parent_path().parent_path() / "lib/libgputrain.so"}) {
    const std::string facts = Program({"readelf", "-W", "-d", "--dyn-syms", file}).wait().out;
    EXPECT_THAT(facts, HasSubstr("NOW")) << file;
    EXPECT_THAT(facts, HasSubstr("__stack_chk_fail")) << file;
  }
  const std::string library =
      Program({"readelf", "-W", "--dyn-syms", program.parent_path().parent_path() / "lib/libgputrain.so"}).wait().out;
  EXPECT_THAT(library, HasSubstr("__memcpy_chk"));
  EXPECT_THAT(library, HasSubstr("__glibcxx_assert_fail"));
}

TEST(ProgramStart, ReportsMissingLibrary) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(gputrain_path(), folder / "gputrain");
  const Result alone = Program({folder / "gputrain", "version"}).wait();
  EXPECT_EQ(alone.exit_code, 6);
  EXPECT_THAT(alone.err, HasSubstr("cannot open the library: libgputrain.so"));
  EXPECT_EQ(Program({folder / "gputrain", "launch", "--help"}).wait().exit_code, 0);
}

TEST(ProgramStart, ReportsPlaceOfDuplicateRegistration) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "bin");
  std::filesystem::create_directory(folder / "lib");
  std::filesystem::copy_file(gputrain_path(), folder / "bin/gputrain");
  std::filesystem::create_symlink(WRONG_REGISTRATIONS, folder / "lib/libgputrain.so");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"version"}, {"list"}, {"run", "job.yaml"}, {"ckpt", "ls", "runs/x"}, {"launch", "run", "job.yaml"}}) {
    std::vector<std::string> command{folder / "bin/gputrain"};
    command.insert(command.end(), words.begin(), words.end());
    const Result result = Program(command).wait();
    EXPECT_EQ(result.exit_code, 6) << words[0] << result.err;
    EXPECT_THAT(result.err, HasSubstr("the model 'mlp' of "));
    EXPECT_THAT(result.err, HasSubstr("wrong_registrations.cpp:28: it is registered twice, also in "));
    EXPECT_THAT(result.err, HasSubstr("mlp.cpp:"));
    EXPECT_THAT(result.err, HasSubstr("wrong_registrations.cpp:29"));
    EXPECT_THAT(result.err, HasSubstr("the key 'on' is declared twice"));
  }
}

TEST(ValidateVerb, ChecksGpuAllocatorWithoutGpu) {
  const TemporaryFolder folder;
  const auto problem_with = [&](const std::string& line) {
    const Result result = gputrain({"validate", write_gpt_job(folder, line)});
    EXPECT_EQ(result.exit_code, line.empty() ? 0 : 2) << line;
    return result.err;
  };
  EXPECT_THAT(problem_with("alloc_conf: \"expandable_segment:True\"\n"), HasSubstr("no setting 'expandable_segment'"));
  EXPECT_THAT(problem_with("alloc_conf: \"expandable_segments:True\"\ndevice: cpu\n"), HasSubstr("device is cpu"));
  const Result run = gputrain({"run", write_gpt_job(folder, "alloc_conf: \"expandable_segments:True\"\n"), "--dry-run"},
                              {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("alloc_conf has no effect"));
}

TEST(ConfigVerb, PrintsAJobThatReadsBackTheSame) {
  const TemporaryFolder folder;
  const Result first = gputrain({"config", write_gpt_job(folder)});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Result second = gputrain({"config", folder.write("resolved.yaml", first.out)});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(first.out, second.out);
}

TEST(ConfigVerb, NamesFileLineAndOptionAsOrigin) {
  const TemporaryFolder folder;
  const Result result = gputrain({"config", "--origin", write_gpt_job(folder), "--set", "seed=7"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("job.yaml:2:"));
  EXPECT_THAT(result.out, HasSubstr("--set seed"));
  EXPECT_THAT(result.out, HasSubstr("default"));
}

TEST(ConfigVerb, ShowsPublishedSizesAndTheirFile) {
  const TemporaryFolder folder;
  const std::string published = folder.write(
      "gpt2/config.json", R"({"model_type": "gpt2", "n_layer": 3, "n_head": 2, "n_embd": 32, "n_positions": 16})");
  const std::string job = folder.write("job.yaml", "model: {type: gpt, pretrained: " + folder / "gpt2" +
                                                       ", config: {n_head: 2, n_layer: 4}}\n"
                                                       "data: {train: {format: synthetic}}\n");
  EXPECT_EQ(gputrain({"config", job}).exit_code, 2) << "it says another n_layer";
  for (const std::string null : {"model.config=null", "model.config.n_layer=null"}) {
    const Result result = gputrain({"config", "--origin", job, "--set", null});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("n_layer: 3  # " + published + "\n"));
    EXPECT_THAT(result.out, HasSubstr("n_embd: 32  # " + published + "\n"));
    EXPECT_THAT(result.out, HasSubstr("type: gpt  # " + job + ":1:"));
    EXPECT_THAT(result.out, HasSubstr("n_head: 2  # " + (null == "model.config=null" ? published : job + ":1:")));
  }
}

TEST(SchemaVerb, PrintsJson) {
  const Result result = gputrain({"schema"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(nlohmann::json::parse(result.out).contains("properties"));
}

TEST(DescribeVerb, KnowsEveryListedEntry) {
  const Result list = gputrain({"list"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  for (const char* name : {"gpt", "resnet50", "imagefolder", "tokens", "adamw", "sgd", "muon", "cosine", "wsd"}) {
    EXPECT_THAT(list.out, HasSubstr(name));
  }
  const Result describe = gputrain({"describe", "model", "gpt"});
  EXPECT_EQ(describe.exit_code, 0) << describe.err;
  EXPECT_THAT(describe.out, HasSubstr("n_layer"));
  const Result unknown = gputrain({"describe", "model", "gpd"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("gpt"));
}

TEST(CommandLine, PrintsHelpIn80Columns) {
  using Words = std::vector<std::string>;
  for (Words words : {Words{},
                      {"run"},
                      {"launch"},
                      {"eval"},
                      {"generate"},
                      {"validate"},
                      {"config"},
                      {"schema"},
                      {"list"},
                      {"describe"},
                      {"data", "audit"},
                      {"ckpt"},
                      {"ckpt", "ls"},
                      {"ckpt", "verify"},
                      {"ckpt", "prune"},
                      {"replay"},
                      {"predict"},
                      {"embed"},
                      {"export"},
                      {"bench", "comm"},
                      {"bench", "data"},
                      {"bench", "disk"},
                      {"bench", "matmul"},
                      {"bench", "memory"},
                      {"bench", "train"}}) {
    words.emplace_back("--help");
    const Result help = gputrain(words);
    EXPECT_EQ(help.exit_code, 0) << help.err;
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << words[0] << ": " << line;
  }
}

TEST(ProgramHelper, EndsEndlessOutputInTime) { EXPECT_EQ(Program({"yes"}).wait(1).exit_code, 128 + SIGKILL); }

TEST(DescribeVerb, FindsKeysGroupsAndEntries) {
  const Result job = gputrain({"describe", "job"});
  std::istringstream lines(job.out);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.size(), 80U) << line;  // without a terminal, the width is 80 columns
  const Result key = gputrain({"describe", "optimizer.lr"});
  EXPECT_THAT(key.out, HasSubstr("optimizer.lr  number > 0"));
  EXPECT_EQ(std::count(key.out.begin(), key.out.end(), '\n'), 2);  // the key and its help
  const Result group = gputrain({"describe", "job", "limits"});
  EXPECT_THAT(group.out, HasSubstr("limits.max_duration "));
  EXPECT_THAT(group.out, ::testing::Not(HasSubstr("train.max_steps")));
  EXPECT_THAT(gputrain({"describe", "alerts"}).out, HasSubstr("alerts[].metric  text  required"));
  EXPECT_EQ(gputrain({"describe", "gpt"}).out, gputrain({"describe", "model", "gpt"}).out);
  const std::string foreign = gputrain({"describe", "learning_rate"}).out;
  EXPECT_THAT(foreign, HasSubstr("`learning_rate` of other programs is `optimizer.lr`:\nKEY  "));
  EXPECT_THAT(gputrain({"describe", "max_length"}).out, HasSubstr("`data.text.max_length`:\n"));
  EXPECT_THAT(gputrain({"describe", "weight_decay"}).out,
              HasSubstr("`optimizer.weight_decay`, of optimizer adafactor, adamw"));
  EXPECT_THAT(gputrain({"describe", "hidden_size"}).out, HasSubstr("`model.config.n_embd`, of model bert, gpt"));
  EXPECT_THAT(refusal_of({"describe", "nonsense"}), HasSubstr("gputrain describe job"));
  EXPECT_THAT(refusal_of({"describe", "optimzer.lr"}), HasSubstr("did you mean 'optimizer.lr'?"));
}

TEST(EvalVerb, SaysWhatToDoWithoutWeights) {
  const TemporaryFolder folder;
  const Result result = gputrain({"eval", write_gpt_job(folder), "--output-dir", folder / "none"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("train first (gputrain run)"));
}

TEST(Run, OverwritesNoForeignFiles) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder), weights = folder.write("theirs/model.safetensors", "weights");
  EXPECT_EQ(gputrain({"run", job, "--dry-run", "--output-dir", folder / "theirs"}).exit_code, 2);
  EXPECT_EQ(gputrain({"launch", "--nproc-per-node", "2", "run", job, "--output-dir", folder / "theirs"}).exit_code, 2);
  EXPECT_EQ(read_file(weights), "weights");
  for (const std::string name : {"model.safetensors", "config.json", "model.json", "metrics.jsonl", "summary.json"}) {
    const std::string file = folder.write("of-" + name + "/" + name, "theirs");
    const Result result = gputrain({"run", job, "--output-dir", folder / ("of-" + name)});
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_THAT(result.err, HasSubstr(name + ": this is not a run folder, and a run would overwrite this file"));
    EXPECT_EQ(read_file(file), "theirs");
  }
  EXPECT_EQ(gputrain({"run", job, "--output-dir", ""}).exit_code, 2);
}

TEST(Run, RefusesUnmeasurableMetricsUpFront) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  for (const std::string set : {"expect.val/top1=[0, 1]", "expect.val/loss=[3, 1]", "checkpoint.metric=top1"}) {
    const Result result = gputrain({"run", job, "--output-dir", folder / "run", "--dry-run", "--set", set});
    EXPECT_EQ(result.exit_code, 2) << set << result.out;
  }
  EXPECT_EQ(gputrain({"run", job, "--output-dir", folder / "run", "--verify"}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(EvalVerb, MatchesValidationLossOfTraining) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const auto summary = nlohmann::json::parse(read_file(folder / "run/summary.json"));
  const Result result = gputrain({"eval", job, "--weights", folder / "run", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out)["val/loss"], summary["metrics"]["val/loss"]);
  EXPECT_EQ(gputrain({"eval", job, "--output-dir", folder / "run", "--json"}).out, result.out);
  for (const std::string& of_run : {folder / "run", folder / "run/ckpt/latest"})
    EXPECT_EQ(gputrain({"eval", of_run, "--json"}).out, result.out) << of_run;
  EXPECT_EQ(gputrain({"launch", "--nproc-per-node", "1", "eval", folder / "run", "--json"}).out, result.out);
  EXPECT_THAT(gputrain({"eval", folder.path().string()}).err, HasSubstr("neither a job nor a run"));
  // The seed's offset of windows and data.last: drop affect only training.
  for (const std::string of_training : {"seed=7", "data.last=drop"}) {
    const Result again = gputrain({"eval", job, "--weights", folder / "run", "--json", "--set", of_training});
    EXPECT_EQ(again.out, result.out) << of_training << again.err;
  }
}

// A key that a later version no longer has must not close the folders of runs that wrote it.
TEST(EvalVerb, ReadsTheRecordOfAnotherVersion) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder), record = folder / "run/job.resolved.yaml";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const std::string before = gputrain({"eval", record, "--json"}).out;
  std::string text = read_file(record);
  const size_t log = text.find("\nlog:\n") + 6;
  text.insert(log, "  charts: {interval: 5}\n  tables: false\n  maps: null\n");
  folder.write("run/job.resolved.yaml", text);
  const Result result = gputrain({"eval", record, "--json"});
  EXPECT_EQ(result.out, before);
  EXPECT_THAT(result.err,
              HasSubstr(record + ": another version of gputrain wrote it, and log.charts has no effect here"));
  const Result written = gputrain({"generate", folder / "run", "--prompt", "a", "--max-new-tokens", "1"});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  EXPECT_EQ(gputrain({"eval", record, "--set", "log.charts=1"}).exit_code, 2);
  EXPECT_EQ(gputrain({"validate", folder.write("copy.yaml", text)}).exit_code, 2);
}

TEST(EvalVerb, TakesPretrainedWeightsBeforeAnyRun) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const std::vector<std::string> eval{
      "eval", job, "--json", "--output-dir", folder / "new", "--set", "model.pretrained=" + folder / "run"};
  const Result result = gputrain(eval);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, gputrain({"eval", job, "--weights", folder / "run", "--json"}).out);
  folder.write("new/ckpt/latest", "step-00000010");
  EXPECT_EQ(gputrain(eval).exit_code, 3) << "a run has begun, whose weights are others";
}

// 150 targets are not a multiple of batches of 4 or 7 sequences; the evaluation must not depend on the batch size.
TEST(EvalVerb, TakesExactlyTheFirstTokens) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder, "eval: {max_tokens: 150}\n");
  ASSERT_EQ(gputrain({"run", job, "--output-dir", folder / "run"}).exit_code, 0);
  const auto loss = [&](const std::string& batch_size) {
    const Result result =
        gputrain({"eval", job, "--weights", folder / "run", "--json", "--set", "eval.batch_size=" + batch_size});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["val/loss"].get<double>();
  };
  EXPECT_NEAR(loss("4"), loss("7"), 1e-9);
  EXPECT_THAT(gputrain({"eval", job, "--weights", folder / "run"}).out, HasSubstr("on the first 10 samples of "));
}

TEST(CommandLine, NamesTheJobInAGivenRunFolder) {
  const TemporaryFolder folder;
  folder.write("run/job.resolved.yaml", "schema: 1\n");
  const Result result = gputrain({"validate", folder / "run"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("this run's job is " + folder / "run/job.resolved.yaml"));
}

TEST(CommandLine, Exits6WhenOutputCannotBeWritten) {
  for (const char* verb : {"schema", "list"}) {
    const Result result = Program({"sh", "-c", gputrain_path() + " " + verb + " > /dev/full"}).wait();
    EXPECT_EQ(result.exit_code, 6) << verb;
    EXPECT_THAT(result.err, HasSubstr("cannot write the output to stdout")) << verb;
  }
}

TEST(CommandLine, Exits2WhenWrong) {
  EXPECT_EQ(gputrain({}).exit_code, 2);
  EXPECT_EQ(gputrain({"trian"}).exit_code, 2);
  EXPECT_EQ(gputrain({"run"}).exit_code, 2);
  EXPECT_EQ(gputrain({"run", "/nowhere.yaml"}).exit_code, 2);
  EXPECT_EQ(gputrain({"--help"}).exit_code, 0);
  EXPECT_EQ(gputrain({"version"}).exit_code, 0);
}

TEST(CommandLine, RefusesEmptyPaths) {
  const TemporaryFolder folder;
  const std::string job = write_gpt_job(folder);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"run", ""},
                                             {"validate", ""},
                                             {"data", "audit", ""},
                                             {"ckpt", "ls", ""},
                                             {"eval", job, "--weights", ""},
                                             {"run", job, "--dry-run", "--world-size", "2", "--device-memory", ""}}) {
    const Result result = gputrain(words);
    EXPECT_EQ(result.exit_code, 2) << words[0] << result.out;
    EXPECT_THAT(result.err, ::testing::AllOf(HasSubstr(": is empty"), HasSubstr(" --help` explains"))) << words[0];
  }
}

TEST(CommandLine, SuggestsFixes) {
  EXPECT_THAT(refusal_of({}), HasSubstr("try: one of run, launch, "));
  EXPECT_THAT(refusal_of({"train", "job.yaml"}), HasSubstr("no subcommand 'train'\n  try: `gputrain run`"));
  EXPECT_THAT(refusal_of({"job.yaml"}), HasSubstr("no subcommand 'job.yaml'\n  try: `gputrain run job.yaml`"));
  EXPECT_THAT(refusal_of({"valdate", "job.yaml"}), HasSubstr("did you mean 'validate'?"));
  EXPECT_THAT(refusal_of({"ckpt", "list", "x"}), HasSubstr("`gputrain ckpt ls`"));
  EXPECT_THAT(refusal_of({"run", "job.yaml", "--output_dir", "x"}), HasSubstr("did you mean '--output-dir'?"));
  EXPECT_THAT(refusal_of({"run", "job.yaml", "--lr=3"}),
              HasSubstr("no option '--lr'\n  try: set keys of the job with --set"));
  EXPECT_THAT(refusal_of({"run", "a.yaml", "b.yaml"}), HasSubstr("does not take 'b.yaml'"));
  EXPECT_THAT(refusal_of({"run", "a.yaml", "train.max_steps=3"}), HasSubstr("try: --set train.max_steps=3"));
  EXPECT_THAT(refusal_of({"--set", "seed=1", "run", "a.yaml"}), HasSubstr("'--set' stands before `run`"));
  EXPECT_THAT(refusal_of({"replay", "x", "--step", "0"}), HasSubstr("--step: must be a whole number of at least 1"));
  EXPECT_THAT(refusal_of({"launch", "--nproc_per_node", "2", "run", "x"}),
              HasSubstr("did you mean '--nproc-per-node'?"));
  EXPECT_THAT(refusal_of({"launch", "--master_port=1", "run", "x"}), HasSubstr("--set launch.master_port=29500"));
  EXPECT_THAT(refusal_of({"launch", "generate", "x"}), HasSubstr("not of 'generate'"));
  EXPECT_THAT(gputrain({"--version"}).out, ::testing::StartsWith("gputrain "));
}

}  // namespace
}  // namespace gputrain::testing_support
