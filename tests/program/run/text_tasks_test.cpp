// Encoders on made-up texts: every task learns, on one rank or two, and goes on where it stopped.
#include <cmath>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/byte_tokenizer.hpp"
#include "support/job_runs.hpp"
#include "support/rank_runs.hpp"

namespace gputrain::testing_support {
namespace {

using Json = nlohmann::json;

constexpr int kSamples = 64;

const char* word_of(int number) {
  constexpr const char* kWords[] = {"red", "green", "blue", "old", "new", "small", "big", "far"};
  return kWords[number % 8];
}

/// What a task learns from, a line for each sample.
Json record_of(const std::string& task, int i) {
  const int a = i % 8, b = (i / 8) % 8;
  const std::string text = std::string(word_of(a)) + " house " + word_of(b);
  if (task == "text_classification") return {{"text", text}, {"label", a < 4 ? "colour" : "size"}};
  if (task == "multi_label_classification") {
    Json labels = Json::array();
    if (a < 4 || b < 4) labels.push_back("colour");
    if (a >= 4 || b >= 4) labels.push_back("size");
    return {{"text", text}, {"label", labels}};
  }
  if (task == "regression") return {{"text", text}, {"label", a / 7.0}};
  if (task == "tagging")
    return {{"tokens", {word_of(a), "house", word_of(b)}},
            {"tags", {a < 4 ? "B-COLOUR" : "O", a < 4 ? "I-COLOUR" : "O", b < 4 ? "B-COLOUR" : "O"}}};
  if (task == "retrieval")
    return {{"anchor", text}, {"positive", std::string("it is ") + word_of(a) + " and " + word_of(b)}};
  if (task == "similarity")
    return {{"sentence1", text},
            {"sentence2", std::string("a ") + word_of(b) + " car"},
            {"score", (a < 4) == (b < 4) ? 1.0 : 0.0}};
  return {{"text", "red house red house red house red house red house"}};
}

class TextTask : public JobRuns {
 protected:
  std::string write_job(const std::string& task, const std::string& more = "", int samples = kSamples) const {
    std::string lines;
    for (int i = 0; i < samples; ++i) lines += record_of(task, i).dump() + "\n";
    folder_.write("data.jsonl", lines);
    const std::string head = task == "tagging"                             ? "tagger"
                             : task == "retrieval" || task == "similarity" ? "embedder"
                             : task == "masked_language_model"             ? "mlm"
                                                                           : "classifier";
    return folder_.write("job.yaml", R"(
seed: 3
device: cpu
model: {type: bert, config: {head: )" + head +
                                         R"(, n_layer: 1, n_head: 2, n_embd: 32, dropout: 0}}
task: {type: )" + task + R"(}
data: {train: {path: )" + (folder_ / "data.jsonl") +
                                         R"(, format: jsonl}, val: {path: )" + (folder_ / "data.jsonl") +
                                         R"(, format: jsonl}, text: {tokenizer: words}}
train: {max_steps: 60, global_batch_size: 16}
optimizer: {type: adamw, lr: 0.01}
eval: {interval: 60}
log: {interval: 1}
)" + more);
  }
};

struct Learned {
  const char *task, *metric;
  double least;
};

class TextTasks : public TextTask, public ::testing::WithParamInterface<Learned> {};
INSTANTIATE_TEST_SUITE_P(All, TextTasks,
                         ::testing::Values(Learned{"text_classification", "val/accuracy", 100},
                                           Learned{"multi_label_classification", "val/f1_micro", 0.999},
                                           Learned{"regression", "val/spearman", 0.95},
                                           Learned{"tagging", "val/entity_f1", 0.999},
                                           Learned{"retrieval", "val/recall_at_1", 95},
                                           Learned{"similarity", "val/spearman", 0.8},
                                           Learned{"masked_language_model", "val/loss", -0.5}),
                         [](const auto& entry) { return std::string(entry.param.task); });

/// The tokenizer `words` and the classes come from the training data, which may have changed since.
TEST_F(TextTask, IsNotPredictedWithWordsOrClassesOfOtherData) {
  const std::string job = write_job("text_classification"), run_folder = folder_ / "run";
  ASSERT_EQ(run(job, "run").exit_code, 0);
  const std::string whole = read_file(folder_ / "data.jsonl"), texts = folder_.write("texts.txt", "one text\n");
  const std::vector<std::vector<std::string>> commands{{"predict", run_folder, texts},
                                                       {"eval", job, "--weights", run_folder + "/model.safetensors"},
                                                       {"export", run_folder, folder_ / "hf", "--format", "hf"}};
  for (const auto& words : commands) EXPECT_EQ(gputrain(words, kOneThread).exit_code, 0) << words[0];
  std::filesystem::remove_all(folder_ / "hf");
  auto line = nlohmann::json::parse(whole.substr(0, whole.find('\n')));
  line["text"] = "other other other words words words";
  folder_.write("data.jsonl", whole + line.dump() + "\n");
  for (const auto& words : commands) {
    const Result refused = gputrain(words, kOneThread);
    EXPECT_EQ(refused.exit_code, 3) << words[0] << refused.out;
    EXPECT_THAT(refused.err, ::testing::HasSubstr("trained on other data: the tokenizer that is made from this data"))
        << words[0];
  }
}

/// As after a kill: there is no file but those of the first step and a checkpoint. Runs of versions that wrote no
/// model.json are read by their data.
TEST_F(TextTask, IsPredictedWithoutItsDataBeforeItHasEnded) {
  std::filesystem::create_directories(folder_.path() / "tokenizer");
  folder_.write("tokenizer/tokenizer.json", byte_tokenizer({"[PAD]"}).dump());
  const std::string texts =
      folder_.write("texts.txt", "red house old\nbig house far and longer than all that it has seen\n");
  for (const char* task : {"text_classification", "multi_label_classification", "regression"}) {
    const std::string folder = folder_ / task, data = folder_ / "data.jsonl", aside = folder_ / "aside.jsonl";
    const Result trained =
        gputrain({"run", write_job(task), "--output-dir", folder, "--set", "data.text.tokenizer=published", "--set",
                  "data.text.tokenizer_path=" + (folder_ / "tokenizer"), "--set", "data.text.max_length=32", "--set",
                  "train.max_steps=6"},
                 kOneThread);
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const Result at_end = gputrain({"predict", folder, texts, "--json"}, kOneThread);
    ASSERT_EQ(at_end.exit_code, 0) << at_end.err;
    EXPECT_THAT(at_end.err, ::testing::HasSubstr("32 tokens"));
    for (const char* file : {"/model.safetensors", "/config.json"}) std::filesystem::remove(folder + file);
    std::filesystem::rename(data, aside);
    const Result killed = gputrain({"predict", folder, texts, "--json"}, kOneThread);
    EXPECT_EQ(killed.exit_code, 0) << killed.err;
    EXPECT_EQ(killed.out, at_end.out) << task;
    std::filesystem::rename(aside, data);
    std::filesystem::remove(folder + "/model.json");
    EXPECT_EQ(gputrain({"predict", folder, texts, "--json"}, kOneThread).out, at_end.out) << task;
    folder_.write(std::string(task) + "/model.json", "{}");
    const Result damaged = gputrain({"predict", folder, texts}, kOneThread);
    EXPECT_EQ(damaged.exit_code, 3);
    EXPECT_THAT(damaged.err, ::testing::AllOf(::testing::HasSubstr("not what a run says of its model"),
                                              ::testing::HasSubstr("model.json")));
  }
}

TEST_F(TextTask, OfTagsThatAreNumbersMeasuresNoEntities) {
  const std::string job = write_job("tagging");
  std::string lines;
  for (int i = 0; i < kSamples; ++i)
    lines += Json{{"tokens", {word_of(i), "house"}}, {"tags", {i % 2, 0}}}.dump() + "\n";
  folder_.write("data.jsonl", lines);
  const Result result = run(job, "run", {"--set", "train.max_steps=4", "--set", "eval.interval=2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, ::testing::HasSubstr("the tags are numbers"));
  EXPECT_THAT(result.out, ::testing::HasSubstr("result  val/accuracy"));
  EXPECT_FALSE(metrics("run").contains("val/entity_f1"));
}

TEST_F(TextTask, TagsAFileOfWordsAsItsFormSays) {
  ASSERT_EQ(run(write_job("tagging"), "run", {"--set", "train.max_steps=2"}).exit_code, 0);
  const std::string words = folder_.write("words.txt", "-DOCSTART- -X- O\n\nred O\nhouse O\n\nold O\n");
  const Result result = gputrain({"predict", folder_ / "run", words, "--json"}, kOneThread);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::AllOf(::testing::HasSubstr(R"("words":["red","house"])"),
                                           ::testing::Not(::testing::HasSubstr("DOCSTART"))));
  EXPECT_THAT(result.err, ::testing::HasSubstr("is read as .conll"));
}

TEST_F(TextTask, IsPredictedIntoATableOfTheNameOfItsFile) {
  ASSERT_EQ(run(write_job("text_classification"), "run", {"--set", "train.max_steps=2"}).exit_code, 0);
  const std::string texts = folder_.write("texts.txt", "red house\nbig house\n");
  const auto written = [&](const std::string& name) {
    const Result result = gputrain({"predict", folder_ / "run", texts, "--output", folder_ / name}, kOneThread);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_file(folder_ / name);
  };
  EXPECT_THAT(written("out.csv"),
              ::testing::MatchesRegex("label,probability,probabilities_colour,probabilities_size\n"
                                      "(colour|size),0[.][0-9]+,0[.][0-9]+,0[.][0-9]+\n(colour|size),[^\n]+\n"));
  EXPECT_THAT(written("out.tsv"), ::testing::StartsWith("label\tprobability\t"));
  EXPECT_THAT(written("out.jsonl"), ::testing::StartsWith("{\"label\":"));
  EXPECT_THAT(written("out.txt"), ::testing::MatchesRegex("(colour|size)\t0[.][0-9]+\n(.|\n)*"));
  const Result both =
      gputrain({"predict", folder_ / "run", texts, "--json", "--output", folder_ / "b.csv"}, kOneThread);
  EXPECT_EQ(both.exit_code, 2);
}

TEST_P(TextTasks, LearnsMadeUpTexts) {
  const auto& [task, metric, least] = GetParam();
  const Result result = run(write_job(task), "run");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const double value = metrics("run")[metric];
  EXPECT_GE(least < 0 ? -value : value, least) << result.out;
}

// The last step of an epoch has one sample: less than there are ranks.
TEST_F(TextTask, IsTheSameOnTwoRanksAndAfterAStop) {
  for (const char* task : {"text_classification", "retrieval", "masked_language_model"}) {
    SCOPED_TRACE(task);
    const std::string job = write_job(task, "precision: fp64\ncheckpoint: {interval: 10}\n", kSamples + 1), name = task;
    ASSERT_EQ(run(job, name + "1", {"--set", "train.max_steps=20"}).exit_code, 0);
    const Result two = ranks(2, job, folder_ / (name + "2"), {"--set", "train.max_steps=20"});
    ASSERT_EQ(two.exit_code, 0) << two.err;
    expect_equal_losses(folder_ / (name + "1/metrics.jsonl"), folder_ / (name + "2/metrics.jsonl"), 1e-9);
    copy_without_the_end(folder_ / (name + "1"), folder_ / (name + "3"));
    ASSERT_EQ(run(job, name + "3", {"--set", "train.max_steps=20"}).exit_code, 0);
    EXPECT_EQ(losses_of(folder_ / (name + "1")), losses_of(folder_ / (name + "3")));
  }
}

/// Encoders of each family, whose tokens are those of a folder.
class EncoderFolders : public JobRuns, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    std::string words;
    for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "house"})
      words += std::string(special) + "\n";
    for (int i = 0; i < 8; ++i) words += std::string(word_of(i)) + "\n";
    folder_.write("tokens/vocab.txt", words);
    folder_.write(
        "tokens/tokenizer_config.json",
        R"({"tokenizer_class": "BertTokenizer", "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]",
                      "cls_token": "[CLS]", "mask_token": "[MASK]"})");
    texts_ = folder_.write("texts.txt", "red house blue\nold house new\n");
  }

  /// A run of two steps.
  std::string trained(const std::string& task, const std::string& head) const {
    std::string lines;
    for (int i = 0; i < 16; ++i) lines += record_of(task, i).dump() + "\n";
    const std::string data = folder_.write(head + ".jsonl", lines);
    const std::string job = folder_.write(
        head + ".yaml",
        "schema: 1\ndevice: cpu\nmodel: {type: bert, config: {head: " + head + ", " + GetParam() +
            ", n_layer: 2, n_head: 2, n_embd: 16, n_inner: 32, block_size: 16}}\ndata: {train: {format: "
            "jsonl, path: " +
            data + "}, val: {path: " + data + "}, text: {tokenizer: published, tokenizer_path: " + folder_ / "tokens" +
            ", max_length: 8}}\ntrain: {max_steps: 2, global_batch_size: 8}\n");
    const Result result = run(job, head);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Result measured = gputrain({"eval", job, "--weights", folder_ / head, "--json"}, kOneThread);
    EXPECT_EQ(measured.exit_code, 0) << measured.err;
    return folder_ / head;
  }

  /// What a verb prints of the texts, or of their vectors.
  std::string output_of(const std::string& verb, const std::string& model) const {
    const std::string vectors = folder_ / "vectors.npy";
    std::vector<std::string> words{verb, model, texts_};
    if (verb == "embed") words.insert(words.end(), {"--output", vectors});
    const Result result = gputrain(words, kOneThread);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return verb == "embed" ? read_file(vectors) : result.out;
  }

  std::string texts_;
};
INSTANTIATE_TEST_SUITE_P(Families, EncoderFolders,
                         ::testing::Values("variant: bert", "variant: roberta", "variant: xlm_roberta",
                                           "variant: camembert", "variant: distilbert", "variant: modernbert",
                                           "variant: modernbert, window: 4"));

TEST_P(EncoderFolders, AreReadAgain) {
  for (const auto& [task, head, verb] :
       {std::tuple("text_classification", "classifier", "predict"), std::tuple("retrieval", "embedder", "embed")}) {
    const std::string model = trained(task, head), exported = folder_ / "exported-" + head;
    const std::string told = output_of(verb, model);
    const Result result = gputrain({"export", model, exported, "--format", "hf"}, kOneThread);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(output_of(verb, exported), told) << GetParam();
  }
}

}  // namespace
}  // namespace gputrain::testing_support
