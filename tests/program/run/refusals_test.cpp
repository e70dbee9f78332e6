// What the program refuses: with which exit code, and in which words. One row for each message.
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../../src/cli/commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/run/preparation.hpp"
#include "gputrain/setup/compatibility.hpp"
#include "refused_things.hpp"

namespace gputrain::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using enum ExitCode;

Words parts_of(const std::string& text, const std::string& between) {
  Words parts;
  size_t begin = 0;
  for (size_t end = text.find(between); end != text.npos; end = text.find(between, begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + between.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

/// A job, settings, the exit code, and words of what is said.
constexpr const char* kJobRows = R"(
images | task={type: classification, config: {class_weights: [0, 0, 0]}} | 2 | no class has a weight above 0
images | task={type: classification, config: {class_weights: [1, 2]}} | 2 | 2 weights for 3 classes
images | task={type: classification, config: {target_threshold: 0.5}} | 2 | target_threshold: it is of loss: bce, but loss is cross_entropy
images | task={type: classification, config: {sum_classes: true}} | 2 | sum_classes: it is of loss: bce, but loss is cross_entropy
images | task={type: classification, config: {gamma: 3}} | 2 | gamma: it is of loss: focal, but loss is cross_entropy
images | task={type: classification, config: {alpha: 0.3}} | 2 | alpha: it is of loss: focal, but loss is cross_entropy
images | train.global_batch_size=null | 2 | no batch size is given
images | train.max_steps=null | 2 | no limit of training is set
images | lr_scheduler={type: cosine, min_lr: 1} | 2 | min_lr 1 is above the peak rate 0.1
images | lr_scheduler.type=cosine & train.max_steps=null & train.max_time=1m | 2 | the learning rate would never decay
images | plugins=['@/text.txt'] | 2 | is no shared library
images | checkpoint.resume=must | 5 | checkpoint.resume is must, but there is no good checkpoint
images | checkpoint.resume='@/none' | 5 | there is no such checkpoint
words | eval.sample.prompt='' | 2 | the prompt has no token
words | eval.sample.prompt=' ' | 2 | the prompt has no token
classes | eval.sample.prompt=a | 2 | eval.sample: needs a model that continues texts
tokens | eval.sample.prompt=a | 2 | no vocabulary to write text with
images | model={type: sequential, config: {layers: [flatten]}} | 2 | write `{type: flatten}`
images | model={type: sequential, config: {layers: [{channels: 8}]}} | 2 | = batch_norm, conv2d, 
images | model={type: sequential, config: {layers: [{type: linear}]}} | 2 | linear needs a vector [features], and the data gives [3, 8, 8]
images | model={type: sequential, config: {layers: [{type: flatten}, {type: conv2d, channels: 8}, {type: linear}]}} | 2 | conv2d needs an image [channels, height, width], and flatten before it gives [192]
images | model={type: sequential, config: {layers: [{type: conv2d, channels: 8, groups: 2}, {type: linear}]}} | 2 | conv2d needs channels that 2 groups divide
images | model={type: sequential, config: {layers: [{type: conv2d, channels: 8, kernel_size: 19, padding: 0}, {type: linear}]}} | 2 | conv2d needs an image of at least 19 x 19
pretrained | model.config.n_layer=7 | 2 | is 7 here and 1 in the pretrained model
pretrained | model.pretrained='@/base/config.json' | 3 | this file describes weights but does not contain them
pretrained | model.pretrained='@/weights.pt' | 3 | not from PyTorch's pickled files
pretrained | model.pretrained='@/two.safetensors' | 3 | not a safetensors file: it has only 2 bytes
pretrained | model.pretrained='@/deep' | 3 | lists or objects within each other are too deep for such a file
pretrained | model.pretrained='@/gemma-window' | 3 | 'sliding_window' is null
pretrained | model.pretrained='@/gemma-layers' | 3 | 'layer_types' has "odd"
pretrained | model.pretrained='@/quantised' | 3 | these weights are quantised
pretrained | model.pretrained='@/nameless' | 3 | 'model_type' is missing
classes | model={type: bert, pretrained: '@/roberta-padding'} & model.config=null | 3 | 'pad_token_id' is below 0
classes | model={type: bert, pretrained: '@/roberta-positions'} & model.config=null | 3 | leaves no position above 'pad_token_id'
pretrained | model.adapter={type: lora, pretrained: '@/adapter-init'} | 3 | 'init_lora_weights: pissa' changes the base's weights
pretrained | model.adapter={type: lora, pretrained: '@/adapter-alpha'} | 3 | 'lora_alpha' is not between 0 and 1,000,000,000,000
pretrained | model.adapter={type: lora, pretrained: '@/adapter-dropout'} | 3 | 'lora_dropout' is no probability below 1
pretrained | model.adapter={type: lora, pretrained: '@/adapter-targets'} | 3 | 'target_modules' is missing
pretrained | model.adapter={type: lora, pretrained: '@/adapter-list'} | 3 | 'target_modules' is no list of names
pretrained | model.adapter={type: lora, pretrained: '@/adapter-head'} | 2 | 'lm_head' is tied to the embedding in this model, and cannot be adapted by itself
pretrained | model.adapter={type: lora, pretrained: '@/adapter-pattern'} | 3 | 'rank_pattern' gives 'c_attn' no usable number: 0
pretrained | model.adapter={type: lora, pretrained: '@/adapter-twice'} | 3 | has two sizes: rank
pretrained | model.adapter={type: lora, pretrained: '@/adapter-alone', init: olora} | 2 | begins with trained values has no other start
pretrained | model.adapter={type: lora, pretrained: '@/adapter-alone', dora: true} | 2 | is true here and false in
pretrained | model.adapter={type: lora, groups: [{match: nope, rank: 3}]} | 2 | 'nope' means none of the layers that are adapted
pretrained | model.adapter={type: lora, groups: [{match: c_attn}]} | 2 | the group changes nothing
pretrained | model.adapter={type: lora, rank: 99, init: pissa} | 2 | has rank 16 at most
pretrained | model.adapter={type: lora, targets: [x]} | 2 | is `model.adapter.target_modules: [x]` here
pretrained | model.adapter={type: lora, target_modules: [nope]} | 2 | 'nope' means no dense layer of the model
images | data.val={format: synthetic, num_classes: 9} | 3 | of 9 classes, but those of data.train are
tokens | data.val={format: synthetic, vocab_size: 99} | 2 | has 99 different tokens, and data.train 67
files | data.train={format: idx, path: '@/numbers'} | 3 | but 3 labels
files | data.train={format: idx, path: '@/digits'} & data.image.channels=3 | 2 | IDX images are grey
files | data.train={format: csv, path: '@/list.csv'} | 3 | the name a has no ending, and there are a.jpg and a.png
files | data.train={format: csv, path: '@/list.csv'} & data.image.columns.label=[] | 2 | no column of labels
files | data.train={format: jsonl, path: '@/bytes.jsonl'} | 3 | the image has no bytes
files | data.train={format: csv, path: '@/packed.csv'} | 3 | a ZIP archive (.zip, .npz, PyTorch's .pt), not a table
classes | data.train={format: csv, path: '@/names.csv'} | 3 | the table has no row but the names
classes | data.train={format: csv, path: '@/quote.csv'} | 3 | a quote is opened and never closed
classes | data.text.columns.label=[label, other] & model.config.head=embedder & task.type=similarity | 2 | several columns of labels, and this model learns from one
classes | data.train.path='@/tags.jsonl' & model.config.head=tagger | 3 | 2 words with 1 tag
classes | data.val={format: jsonl, path: '@/others.jsonl'} | 3 | the class 'zz' is not one of the training data
text | data.train={format: jsonl, path: '@/list.json'} | 3 | an element of the JSON list is missing before ','
text | data.train={format: jsonl, path: '@/short.jsonl'} | 3 | less than two tokens: nothing to predict
text | data.train={format: jsonl, path: '@/messages.jsonl'} | 3 | 'messages' is neither a list nor the JSON text of one
text | data.train={format: jsonl, path: '@/asked.jsonl'} | 3 | 'prompt' is a conversation, but 'completion' is not
text | data.train={format: jsonl, path: '@/prompts.jsonl'} | 3 | a 'prompt' without a 'completion'
)";

/// Returns the path of what stands in the folder of the test.
using At = std::function<std::string(const std::string&)>;
using Call = std::function<void(const At& at)>;

struct VerbRow {
  Call call;
  ExitCode code;
  const char* words;
};

Call exporting(const char* folder, const char* format, const char* dtype = "", const Words& set = {}) {
  return [=](const At& at) {
    app::export_model_command(
        {.folder = at(folder), .out = at("exported"), .format = format, .dtype = dtype, .set = set});
  };
}

Call predicting(const char* folder, const Words& files, const char* masks = "", const char* tokenizer = "") {
  return [=](const At& at) {
    app::PredictRequest request{.folder = at(folder)};
    for (const std::string& file : files) request.files.push_back(at(file));
    if (*masks != '\0') request.masks = at(masks);
    if (*tokenizer != '\0') request.tokenizer = at(tokenizer);
    app::predict_command(request);
  };
}

Call generating(const char* folder) {
  return [=](const At& at) { app::generate_command({.folder = at(folder), .prompt = "a"}); };
}

Call answering(const char* folder, const char* suite) {
  return [=](const At& at) { app::eval_command({.job = {.file = at(folder)}, .suite = {.file = at(suite)}}); };
}

Call tokenizing(const char* file, const char* end) {
  return [=](const At& at) {
    app::tokenize_command({.files = {at(file)}, .tokenizer = at("tokenizer"), .output = at("tokens.bin"), .end = end});
  };
}

app::JobRequest job_at(const At& at, const std::string& job, const Words& set = {}) {
  app::JobRequest request{.file = at(job), .output_dir = at("new")};
  for (const std::string& setting : set) request.set.push_back(with_folder(setting, at(".")));
  return request;
}

Call evaluating(const Words& set) {
  return [=](const At& at) { app::eval_command({.job = job_at(at, "images.yaml", set)}); };
}

Call showing(const char* on, const char* page) {
  return [=](const At& at) {
    app::data_show_command({.job = job_at(at, "images.yaml"), .on = on, .output = *page == '\0' ? "" : at(page)});
  };
}

Call sweeping(const Words& set) {
  Words all{"sweep={method: grid, metric: val/loss, parameters: [{key: optimizer.lr, values: [0.1, 0.2]}]}"};
  all.insert(all.end(), set.begin(), set.end());
  return [=](const At& at) { app::sweep_command({.job = job_at(at, "images.yaml", all)}); };
}

const std::vector<VerbRow> kExportRows{
    {exporting("images", "gguf"), usage, "this one reads none\n  try: --format onnx"},
    {exporting("images", "hf"), usage, "no folder of transformers is written for this architecture"},
    {exporting("text", "hf", "q8_0"), usage, "q8_0 is a type of GGUF"},
    {exporting("text", "onnx", "f16"), usage, "ONNX files are written in fp32"},
    {exporting("none", "adapter"), usage, "no such folder"},
    {exporting("text", "adapter"), usage, "there is no adapter"},
    {exporting("adapted", "hf"), usage, "the run trained an adapter"},
    {exporting("words", "gguf"), usage, "the model's tokenizer is not that of a published model"},
    {exporting("text", "gguf", "", {"model.config.activation=relu"}), usage,
     "readers of GGUF compute no activation 'relu' in this architecture"},
    {exporting("rotary", "hf", "", {"model.config.qkv_bias=true"}), data, "without --set model.config"},
    {exporting("rotary", "gguf", "", {"model.config.window=4"}), usage,
     "readers of GGUF compute no attention to a window in this architecture"},
    {exporting("text", "sentence-transformers"), usage, "sentence-transformers is for vectors of texts"},
};

const std::vector<VerbRow> kVerbRows{
    {predicting("classes", {"text.txt"}, "m"), usage, "--masks is for images, and this reads texts"},
    {predicting("images", {"a.png"}, "m"), usage, "--masks is for models that label pixels"},
    {predicting("images", {"a.png"}, "", "tokenizer"), usage, "--tokenizer is for texts, and this model reads none"},
    {predicting("classes", {"text.txt", "names.csv"}), usage, "texts are read from one file, and these are 2"},
    {predicting("masks", {"a.png", "huge/b/a.png"}, "m"), usage, "two images would have the mask"},
    {predicting("masks", {"a.png"}, "text.txt/m"), environment, "cannot make the folder: Not a directory"},
    {predicting("tomorrow", {"text.txt"}), data, "its schema is 2, and this program knows 1"},
    {predicting("fieldless", {"text.txt"}), data, "it has no fields"},
    {predicting("without-gives", {"text.txt"}), data, "what a run says of its model: key 'gives' not found"},
    {predicting("unnamed", {"text.txt"}), data, "it names 1 of 2 classes"},
    {generating("adapter-base"), data, "it names no base_model_name_or_path"},
    {generating("adapter-classes"), usage, "the adapter gives classes, and its base gives the token that follows"},
    {evaluating({"data.val.split=25%"}), data, "there are no trained weights"},
    {evaluating({}), usage, "the job has no data.val"},
    {answering("words", "empty-text.jsonl"), data, "the text has no token"},
    {answering("words", "empty-prompt.jsonl"), data, "the prompt has no token"},
    {tokenizing("text.txt", "<end>"), usage, "the tokenizer has no token '<end>' to end a document"},
    {tokenizing("text.txt", ""), usage, "the tokenizer does not say which token ends a document"},
    {tokenizing("bytes.jsonl", "none"), data, "the record has no text under"},
    {showing("train", ""), usage, "images are shown on a page"},
    {showing("val", "page.html"), usage, "the job has no data.val"},
    {sweeping({}), usage, "trials are compared by evaluations, and there are none"},
    {sweeping({"sweep.parallel=2", "data.val.split=25%", "log.metrics_port=65535"}), usage,
     "trials beside each other need a port each"},
    {[](const At&) { app::doctor_command({.hosts = {"a b"}}); }, usage, "--hosts: 'a b' is no host name"},
    {[](const At& at) { app::ctl_command({.run = at("images"), .verb = "status"}); }, environment,
     "no run answers in this folder: "},
};

struct CommandRow {
  Words words;
  const char* what;
  const char* hint;
};

/// What the program says of its command line, before it opens its library.
const std::vector<CommandRow> kCommandRows{
    {{"bench"}, "`gputrain bench` needs a subcommand", "one of train, comm, data"},
    {{"ckpt"}, "`gputrain ckpt` needs a subcommand", "one of ls, verify, prune"},
    {{"data"}, "`gputrain data` needs a subcommand", "one of audit, tokenize, show"},
    {{"ckpt", "rm", "x"}, "`gputrain ckpt` has no subcommand 'rm'", "`gputrain ckpt prune`"},
    {{"train", "job.yaml"}, "`gputrain` has no subcommand 'train'", "`gputrain run`"},
    {{"job.yaml"}, "`gputrain` has no subcommand 'job.yaml'", "`gputrain run job.yaml`"},
    {{"--set", "a=b", "run", "job.yaml"}, "the option '--set' stands before `run`", "put it after"},
    {{"run", "job.yaml", "--world_size", "2"},
     "`gputrain run` has no option '--world_size'",
     "did you mean '--world-size'?"},
    {{"run", "job.yaml", "train.max_steps=3"},
     "`gputrain run` does not take 'train.max_steps=3'",
     "--set train.max_steps=3"},
    {{"run"}, "`gputrain run`: job is required", "`gputrain run --help` explains what it takes"},
    {{"export", "run", "out", "--format", "hf", "--dtype", "f64"},
     "--dtype: f64 not in {f32,f16,bf16,q8_0}",
     "`gputrain export --help`"},
    {{"launch"}, "launch needs the command that every rank runs", "gputrain launch --nproc-per-node 2 run job.yaml"},
    {{"launch", "--standalone", "run", "job.yaml"},
     "launch has no option '--standalone'",
     "without --hosts all ranks run on this host"},
    {{"launch", "--nproc", "2", "run", "job.yaml"},
     "`gputrain launch` has no option '--nproc'",
     "did you mean '--nproc-per-node'?"},
    {{"export", "run", "--out", "x"}, "`gputrain export` has no option '--out'", "did you mean '--output'?"},
    {{"data", "show", "job.yaml", "--samples", "3"},
     "`gputrain data show` has no option '--samples'",
     "did you mean '--limit'?"},
    {{"data", "show", "job.yaml", "--split=val"},
     "`gputrain data show` has no option '--split'",
     "did you mean '--on'?"},
    {{"launch", "--nonsense", "run", "job.yaml"},
     "`gputrain launch` has no option '--nonsense'",
     "`gputrain launch --help` lists them"},
    {{"launch", "python", "train.py"},
     "launch starts ranks of `run`, `eval`, `replay` or `bench comm`, not of 'python'",
     "gputrain launch --nproc-per-node 2 run job.yaml"},
};

class Refusals : public RefusedThings {
 protected:
  static void expect_refusal(const std::function<void()>& call, ExitCode code, const std::string& words) {
    try {
      call();
      ADD_FAILURE() << "is not refused: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }

  static void expect_refusals(const std::vector<VerbRow>& rows) {
    make_models();
    for (const VerbRow& row : rows) {
      expect_refusal([&] { row.call(at); }, row.code, row.words);
    }
  }
};

/// Goes the way of a run up to its first step.
void prepare(const app::JobRequest& request) {
  const app::Job job = app::load_job(request);
  app::check_compatibility(job);
  app::RankContext context = app::create_rank_context(job);
  const app::Preparation found = app::prepare_run({.job = request, .dry_run = true}, job, context);
  const app::TrainingSetup setup(found.job, std::move(context), [&] { return found.datasets; });
}

TEST_F(Refusals, OfJobsNameTheMistake) {
  make_base();
  std::istringstream rows(kJobRows);
  for (std::string row; std::getline(rows, row);) {
    if (row.empty()) continue;
    SCOPED_TRACE(row);
    const Words cells = parts_of(row, " | ");
    ASSERT_EQ(cells.size(), 4U);
    expect_refusal([&] { prepare(job_at(at, cells[0] + ".yaml", parts_of(cells[1], " & "))); },
                   static_cast<ExitCode>(std::stoi(cells[2])), cells[3]);
  }
}

TEST_F(Refusals, OfExportsLeaveNothing) {
  expect_refusals(kExportRows);
  EXPECT_FALSE(fs::exists(at("exported")));
}

TEST_F(Refusals, OfVerbsNameTheMistake) { expect_refusals(kVerbRows); }

TEST_F(Refusals, OfCommandLinesSayWhatToTry) {
  for (const CommandRow& row : kCommandRows) {
    const Result result = gputrain(row.words);
    EXPECT_EQ(result.exit_code, 2) << row.what;
    EXPECT_THAT(result.err, AllOf(HasSubstr(row.what), HasSubstr("try: "), HasSubstr(row.hint)));
  }
}

// What a loss or a trial finds comes after the first step.
TEST_F(Refusals, OfRunningJobsNameTheMistake) {
  write_lines("pairs.jsonl", {{"prompt", "ab "}, {"chosen", "good"}, {"rejected", "bad"}});
  const Result reward =
      gputrain({"run", at("classes.yaml"), "--dry-run", "--set", "data.train.path=" + at("pairs.jsonl"), "--set",
                "task.type=reward", "--set", "model.config.num_classes=3"});
  EXPECT_EQ(reward.exit_code, 2);
  EXPECT_THAT(reward.err, HasSubstr("a reward model gives one number for an answer, and this one gives more"));
  const Result image = gputrain(
      {"run", at("files.yaml"), "--dry-run", "--set", "data.train={format: imagefolder, path: '" + at("huge") + "'}"});
  EXPECT_EQ(image.exit_code, 3);
  EXPECT_THAT(image.err, HasSubstr("an image file of 3221225472 bytes"));
  const Result trial = gputrain({"sweep", at("images.yaml"), "--output-dir", at("sweep"), "--set", "data.val.split=25%",
                                 "--set", "log.sinks=[console]", "--set",
                                 "sweep={method: grid, metric: val/loss, parameters: [{key: optimizer.lr, values: "
                                 "[0.1, 0.2]}]}"});
  EXPECT_EQ(trial.exit_code, 2);
  EXPECT_THAT(trial.err,
              AllOf(HasSubstr("the trial has no val/loss in its metrics.jsonl"), HasSubstr("log.sinks with jsonl")));
}

}  // namespace
}  // namespace gputrain::testing_support
