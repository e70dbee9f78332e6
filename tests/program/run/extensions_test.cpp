// Models and datasets of contributors: built from plain ATen operators, on data that is neither images nor text.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../../src/cli/commands.hpp"
#include "comm/rank_processes.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/inspect/bench.hpp"
#include "gputrain/run/ineffective_settings.hpp"
#include "gputrain/setup/training_loop.hpp"
#include "support/program.hpp"

namespace gputrain::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 12, kNumbers = 4, kClasses = 3;

struct NumbersSpec {
  std::string slip;
  int64_t columns = kNumbers;
  static void describe(config::Description<NumbersSpec>& d) {
    d.key("slip", &NumbersSpec::slip, "what goes wrong");
    d.key("columns", &NumbersSpec::columns, "numbers in a row");
  }
};

/// Rows of numbers, as in a table.
class Numbers final : public data::Dataset {
 public:
  Numbers(const NumbersSpec& spec, const data::DatasetRequest&) : slip_(spec.slip) {
    layout_ = data::SampleLayout::values({spec.columns}, at::kFloat, kClasses);
  }
  int64_t size() const override { return kSamples; }
  const data::SampleLayout& layout() const override { return layout_; }
  std::string describe() const override { return "rows of numbers"; }
  void read(int64_t index, const data::ReadContext&, const data::SampleRow& row) const override {
    if (slip_ == "throws" && index == 7) throw std::invalid_argument("stof");
    if (slip_ == "fails" && index == 7) throw std::runtime_error("no such row");
    for (int64_t i = 0; i < layout_.input().sizes[0]; ++i) {
      const auto number = static_cast<float>((index * 5 + i * 3) % 7) / 7;
      row.values<float>(0)[i] = number;
    }
    *row.values<int64_t>(1) = index % kClasses;
  }

 private:
  std::string slip_;
  data::SampleLayout layout_;
};

const config::Registered<Numbers, NumbersSpec> registered_numbers{data::catalog(), "rows_of_numbers",
                                                                  "rows of numbers"};

struct SentencesSpec {
  static void describe(config::Description<SentencesSpec>& d) { d.summary("sentences of one length"); }
};

/// Tokens in samples of a length that the data decides.
class Sentences final : public data::Dataset {
 public:
  Sentences(const SentencesSpec&, const data::DatasetRequest&) {
    layout_ = data::SampleLayout::tokens(kWords, kWords + 1);
  }
  int64_t size() const override { return kSamples; }
  const data::SampleLayout& layout() const override { return layout_; }
  std::string describe() const override { return "sentences"; }
  void read(int64_t, const data::ReadContext&, const data::SampleRow& row) const override {
    for (int64_t i = 0; i < kWords; ++i) {
      row.values<int64_t>(0)[i] = i;
      row.values<int64_t>(1)[i] = i + 1;
    }
  }

 private:
  static constexpr int64_t kWords = 6;
  data::SampleLayout layout_;
};

const config::Registered<Sentences, SentencesSpec> registered_sentences{data::catalog(), "sentences_of_one_length",
                                                                        "tokens"};

struct PlainSpec {
  std::string slip;
  static void describe(config::Description<PlainSpec>& d) { d.key("slip", &PlainSpec::slip, "what goes wrong"); }
};

class Part final : public nn::Module {
 public:
  explicit Part(const nn::Context& context) : Module(context) {
    register_parameter("scale", {2}, nn::Init::ones(), nn::ParameterRole::norm);
  }
};

/// One dense layer with its own parameters, without our layers.
class Plain final : public models::Model {
 public:
  Plain(const PlainSpec& spec, const nn::Context& context, const models::DataFacts& facts)
      : Model(context), slip_(spec.slip), stray_(context) {
    weight_ = register_parameter("weight", {facts.num_classes, facts.input_shape.at(0)}, nn::Init::uniform(0.5),
                                 nn::ParameterRole::weight);
    bias_ = register_parameter("bias", {facts.num_classes}, nn::Init::zeros(), nn::ParameterRole::bias);
    part_ = add_child<Part>("part", context);
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    const at::Tensor logits = at::linear(inputs, weight_, bias_);
    if (slip_ == "transposed") return logits.t().slice(0, 1);
    if (slip_ == "detached") return logits.detach();
    if (slip_ == "scalar") return logits.sum();
    if (slip_ == "undefined") return {};
    return slip_ == "log_softmax" ? at::log_softmax(logits, -1) : logits;
  }

  std::vector<models::Unit> units() override {
    if (slip_ == "in no unit") return {{"part", {part_}}};
    if (slip_ == "in two units") return {{"all", {this}}, {"part", {part_}}};
    if (slip_ == "of another model") return {{"all", {this}}, {"stray", {&stray_}}};
    if (slip_ == "no module") return {{"all", {this}}, {"part", {nullptr}}};
    return {{"all", {this}}};
  }

 private:
  std::string slip_;
  Part stray_;
  Part* part_;
  at::Tensor weight_, bias_;
};

const config::Registered<Plain, PlainSpec> registered_plain{models::catalog(), "one_dense_layer", "a dense layer"};

struct StairsSpec {
  config::Length every{100};
  static void describe(config::Description<StairsSpec>& d) { d.key("every", &StairsSpec::every, "length of a stair"); }
};

class Stairs final : public optim::Schedule {
 public:
  Stairs(const StairsSpec& spec, const optim::ScheduleContext& context)
      : every_(context.to_steps(spec.every, "every")) {}
  double lr(int64_t step) const override { return 1.0 / static_cast<double>(1 + step / every_); }
  std::string describe() const override { return "stairs"; }

 private:
  int64_t every_;
};

const config::Registered<Stairs, StairsSpec> registered_stairs{optim::schedules(), "stairs", "falls in stairs"};

class Extensions : public ::testing::Test {
 protected:
  Job job(std::vector<std::string> settings) {
    const std::string file = folder_.write("job.yaml",
                                           "schema: 1\n"
                                           "model: {type: one_dense_layer}\n"
                                           "data: {train: {format: rows_of_numbers}}\n"
                                           "train: {max_steps: 5, global_batch_size: 12}\n"
                                           "optimizer: {type: sgd, lr: 0.5}\n");
    return load_job({.file = file, .set = std::move(settings)});
  }

  static void train(const Job& job, TrainingSetup& setup) {
    train::Progress progress;
    TrainingLoop(
        job.spec(), setup, [] { return train::Stop::none; }, [] {})
        .run(progress, {});
  }

  std::string mistake_of(const std::string& setting, const std::string& more = "seed=1") {
    try {
      const Job wrong = job({setting, more});
      TrainingSetup setup(wrong);
      train(wrong, setup);
    } catch (const std::exception& mistake) {
      return mistake.what();
    }
    return "none";
  }

  testing_support::TemporaryFolder folder_;
};

struct ByHand {
  at::Tensor inputs, targets, weight, bias;
};

/// The same five steps over all samples at once, with ATen's autograd only.
void take_steps(ByHand& model) {
  for (int step = 0; step < 5; ++step) {
    const at::Tensor logits = at::linear(model.inputs, model.weight, model.bias);
    at::log_softmax(logits, -1).gather(1, model.targets.unsqueeze(1)).mean().neg().backward();
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : {model.weight, model.bias}) {
      parameter.sub_(parameter.grad(), 0.5);
      parameter.grad().zero_();
    }
  }
}

/// The subcommand as the program calls it, with the registrations of this file.
const testing::RankBody kRun("run", [] {
  const std::string folder = std::getenv("FOLDER");
  return run_command({.job = {.file = folder + "/job.yaml", .output_dir = folder + "/run"}});
});

class PlainModel : public Extensions, public ::testing::WithParamInterface<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Cases, PlainModel,
                         ::testing::Values(std::pair("fp32", "linear"), std::pair("fp64", "linear"),
                                           std::pair("fp32", "log_softmax")),
                         [](const auto& entry) { return std::string(entry.param.first) + "_" + entry.param.second; });

TEST_P(PlainModel, TrainsLikeHandWrittenLoop) {
  const auto& [precision, last] = GetParam();
  const Job plain = job({std::string("precision=") + precision, std::string("model.config.slip=") + last});
  TrainingSetup setup(plain);
  EXPECT_THAT(setup.datasets.facts.input_shape, ElementsAre(kNumbers));
  std::vector<at::Tensor> ours;
  setup.built.model->each_parameter([&](const std::string&, nn::Parameter& found) { ours.push_back(found.value); });
  std::vector<float> inputs(kSamples * kNumbers);
  std::vector<int64_t> targets(kSamples);
  for (int64_t i = 0; i < kSamples; ++i) {
    const data::BatchMemory memory{{.values = reinterpret_cast<std::byte*>(inputs.data()),
                                    .bytes = kNumbers * sizeof(float),
                                    .element_bytes = sizeof(float)},
                                   {.values = reinterpret_cast<std::byte*>(targets.data()),
                                    .bytes = sizeof(int64_t),
                                    .element_bytes = sizeof(int64_t)}};
    setup.datasets.train->read(i, {}, data::SampleRow(memory, i));
  }
  ByHand expected{.inputs = at::tensor(inputs).view({kSamples, kNumbers}).to(ours[0].scalar_type()),
                  .targets = at::tensor(targets),
                  .weight = ours[0].detach().clone().set_requires_grad(true),
                  .bias = ours[1].detach().clone().set_requires_grad(true)};
  take_steps(expected);
  train(plain, setup);
  EXPECT_TRUE(ours[0].allclose(expected.weight, 1e-5, 1e-6)) << ours[0] << expected.weight;
  EXPECT_TRUE(ours[1].allclose(expected.bias, 1e-5, 1e-6)) << ours[1] << expected.bias;
}

TEST_F(Extensions, ReportsParametersInWrongUnits) {
  EXPECT_THAT(mistake_of("model.config.slip=in no unit"), HasSubstr("'weight' is in none of the model's units"));
  EXPECT_THAT(mistake_of("model.config.slip=in two units"),
              HasSubstr("'part.scale' is in unit 'all' and again in unit 'part'"));
  EXPECT_THAT(mistake_of("model.config.slip=of another model"), HasSubstr("unit 'stray' holds a parameter 'scale'"));
  EXPECT_THAT(mistake_of("model.config.slip=no module"), HasSubstr("unit 'part' lists a module that is null"));
}

TEST_F(Extensions, WarnsOnceOfParametersWithoutGradient) {
  job({});
  for (const int ranks : {1, 2}) {
    const auto results = testing::RankProcesses("run", ranks, {{"FOLDER", folder_.path()}}).finish();
    std::string said;
    for (const auto& result : results) {
      EXPECT_EQ(result.exit_code, 0) << result.output;
      said += result.output;
    }
    const std::string warning = "the loss of step 1 does not reach 1 parameter: 'part.scale';";
    EXPECT_THAT(said, HasSubstr(warning));
    EXPECT_EQ(said.find(warning), said.rfind(warning)) << said;
    std::filesystem::remove_all(folder_ / "run");
  }
}

TEST_F(Extensions, ReportsWrongLogits) {
  EXPECT_THAT(mistake_of("model.config.slip=transposed"), HasSubstr("logits of [2, 12] for targets of [12]"));
  EXPECT_THAT(mistake_of("model.config.slip=detached"), HasSubstr("no parameter can learn from"));
  EXPECT_THAT(mistake_of("model.config.slip=scalar"), HasSubstr("gives no logits"));
  EXPECT_THAT(mistake_of("model.config.slip=undefined"), HasSubstr("gives no logits"));
}

TEST_F(Extensions, NamesSampleThatCannotBeRead) {
  EXPECT_THAT(mistake_of("data.train.slip=throws"), HasSubstr("stof (sample 7)"));
  EXPECT_THAT(mistake_of("data.train.slip=fails"), HasSubstr("no such row (sample 7)"));
}

TEST_F(Extensions, RefusesValidationDataOfOtherSizes) {
  EXPECT_THAT(mistake_of("data.val={format: rows_of_numbers, columns: 3}"),
              HasSubstr("data.val: its samples are values [3], target [], but those of data.train are values [4],"));
}

TEST_F(Extensions, NamesKeyThatCannotBeATime) {
  EXPECT_THAT(mistake_of("lr_scheduler.type=stairs", "lr_scheduler.every=5m"),
              HasSubstr("lr_scheduler.every cannot be a time"));
}

TEST_F(Extensions, TakesSampleLengthFromTheData) {
  const Job gpt = job({"model={type: gpt, config: {n_layer: 1, n_head: 1, n_embd: 8, block_size: null}}",
                       "data.train={format: sentences_of_one_length}"});
  TrainingSetup setup(gpt);
  train(gpt, setup);
  EXPECT_EQ(setup.datasets.tokens_per_sample(), 6);
}

TEST_F(Extensions, ReportsDataThatCannotBeSynthesized) {
  const Job rows = job({});
  try {
    synthetic_data(rows);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the samples of rows of numbers are neither"));
  }
}

TEST_F(Extensions, WarnsOfKeysForOtherData) {
  const Job idle = job({"data.image.size=32", "data.text.max_length=8", "parallel.shard=gradients"});
  const TrainingSetup setup(idle);
  EXPECT_THAT(ineffective_settings(idle, setup),
              ElementsAre(HasSubstr("data.image.size has no effect: the data holds no images"),
                          HasSubstr("data.text.max_length has no effect: the data holds no text"),
                          HasSubstr("parallel.shard has no effect: there is one rank")));
}

}  // namespace
}  // namespace gputrain::app
