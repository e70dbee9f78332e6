// A small job with every kind of value, for the config tests.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/catalog.hpp"

namespace gputrain::config {

inline constexpr const char* kGoodJob = R"(name: small
model: {type: mlp, config: {widths: [32], dropout: 0.1}}
data: {train: {path: /data, format: idx, invert: true}, val: {path: /data/val}}
train: {max_epochs: 3, warmup: 10%, micro_batch_size: 16}
optimizer: {type: sgd, lr: 1e-1, momentum: 0.9}
expect: {val/top1: [90, 95.5], source: a table}
env: {NCCL_DEBUG: WARN, N: 1}
)";

struct Thing {
  virtual ~Thing() = default;
};
using ThingCatalog = Catalog<Thing>;

inline ThingCatalog& sample_models() {
  static ThingCatalog catalog("model");
  return catalog;
}
inline ThingCatalog& sample_rules() {
  static ThingCatalog catalog("optimizer");
  return catalog;
}
inline ThingCatalog& sample_formats() {
  static ThingCatalog catalog("dataset");
  return catalog;
}

struct MlpSpec {
  std::vector<int64_t> widths{128, 64};
  double dropout = 0.0;
  static void describe(Description<MlpSpec>& d) {
    d.summary("multilayer perceptron");
    d.key("widths", &MlpSpec::widths, "sizes of the hidden layers").range(1, 1e6);
    d.key("dropout", &MlpSpec::dropout, "fraction of values set to zero").range(0, 1).aliases({"dropout_p"});
  }
};
struct GptSpec {
  int64_t n_layer = 12;
  int64_t n_head = 12;
  static void describe(Description<GptSpec>& d) {
    d.key("n_layer", &GptSpec::n_layer, "blocks").at_least(1).aliases({"num_hidden_layers"});
    d.key("n_head", &GptSpec::n_head, "attention heads").at_least(1);
  }
};
struct SgdSpec {
  double lr = 1e-3;
  double momentum = 0.0;
  bool nesterov = false;
  static void describe(Description<SgdSpec>& d) {
    d.key("lr", &SgdSpec::lr, "learning rate").above(0).aliases({"learning_rate"});
    d.key("momentum", &SgdSpec::momentum, "fraction of the last update kept").at_least(0).below(1);
    d.key("nesterov", &SgdSpec::nesterov, "Nesterov momentum");
    d.check([](const SgdSpec& spec, SpecIssues& issues) {
      if (spec.nesterov && spec.momentum == 0) {
        issues.add("nesterov", "Nesterov needs a momentum", "set momentum: 0.9");
      }
    });
  }
};
struct AdamWSpec {
  double lr = 1e-3;
  std::vector<double> betas{0.9, 0.999};
  static void describe(Description<AdamWSpec>& d) {
    d.key("lr", &AdamWSpec::lr, "learning rate").above(0).aliases({"learning_rate"});
    d.key("betas", &AdamWSpec::betas, "decay of the two moments").range(0, 1).elements(2);
  }
};
struct IdxSpec {
  bool invert = false;
  static void describe(Description<IdxSpec>& d) { d.key("invert", &IdxSpec::invert, "black on white"); }
};
struct TextSpec {
  std::vector<std::string> include{"*"};
  std::string unit = "bytes";
  static void describe(Description<TextSpec>& d) {
    d.key("include", &TextSpec::include, "patterns of files to read");
    d.key("unit", &TextSpec::unit, "what a token is").choices({"bytes", "characters"});
  }
};

template <class Spec>
struct Dummy final : Thing {
  explicit Dummy(const Spec& given) : spec(given) {}
  Spec spec;
};

inline const Registered<Dummy<MlpSpec>, MlpSpec> kMlp{sample_models(), "mlp", "multilayer perceptron"};
inline const Registered<Dummy<GptSpec>, GptSpec> kGpt{sample_models(), "gpt", "decoder-only transformer"};
inline const Registered<Dummy<SgdSpec>, SgdSpec> kSgd{sample_rules(), "sgd", "stochastic gradient descent"};
inline const Registered<Dummy<AdamWSpec>, AdamWSpec> kAdamW{sample_rules(), "adamw", "Adam, decoupled decay"};
inline const Registered<Dummy<IdxSpec>, IdxSpec> kIdx{sample_formats(), "idx", "MNIST's format"};
inline const Registered<Dummy<TextSpec>, TextSpec> kText{sample_formats(), "text", "files of text"};

struct ModelSection {
  Choice architecture;
  std::optional<std::string> pretrained;
  static void describe(Description<ModelSection>& d) {
    d.summary("the network");
    d.choice("type", &ModelSection::architecture, sample_models(), "architecture", "config")
        .required()
        .aliases({"model.name"});
    d.key("pretrained", &ModelSection::pretrained, "weights to start from");
  }
};
struct DataSource {
  std::string path;
  Choice format;
  static void describe(Description<DataSource>& d) {
    d.key("path", &DataSource::path, "file or folder").required();
    d.choice("format", &DataSource::format, sample_formats(), "how to read it")
        .inherits("data.train.format")
        .aliases({"data.train.type"});
  }
};
struct DataSection {
  DataSource train;
  std::optional<DataSource> val;
  Auto<int64_t> num_workers;
  static void describe(Description<DataSection>& d) {
    d.summary("what is learned from");
    d.key("train", &DataSection::train, "training data").required();
    d.key("val", &DataSection::val, "validation data");
    d.key("num_workers", &DataSection::num_workers, "threads that read")
        .range(0, 256)
        .change(Change::safe)
        .aliases({"dataloader_num_workers"});
  }
};
struct EmaSection {
  double decay = 0.999;
  static void describe(Description<EmaSection>& d) { d.key("decay", &EmaSection::decay, "of the average").range(0, 1); }
};
struct TrainSection {
  std::optional<int64_t> max_epochs, max_steps;
  std::optional<Duration> max_time;
  Auto<int64_t> micro_batch_size;
  Length warmup{0, Length::Unit::steps};
  double label_smoothing = 0;
  std::optional<EmaSection> ema;
  std::string nonfinite = "stop";
  static void describe(Description<TrainSection>& d) {
    d.summary("the loop");
    d.key("max_epochs", &TrainSection::max_epochs, "passes over the data")
        .at_least(1)
        .change(Change::safe)
        .aliases({"num_train_epochs", "epochs"});
    d.key("max_steps", &TrainSection::max_steps, "optimizer steps")
        .at_least(1)
        .change(Change::safe)
        .aliases({"train_steps"});
    d.key("max_time", &TrainSection::max_time, "wall time").above(0).change(Change::safe);
    d.key("micro_batch_size", &TrainSection::micro_batch_size, "samples in memory at once")
        .at_least(1)
        .unit("samples")
        .aliases({"per_device_train_batch_size", "batch_size"});
    d.key("warmup", &TrainSection::warmup, "rising learning rate")
        .units({Length::Unit::steps, Length::Unit::epochs, Length::Unit::percent})
        .aliases("warmup_ratio", percent_of_ratio)
        .aliases("warmup_epochs", epochs_of_count);
    d.key("label_smoothing", &TrainSection::label_smoothing, "share given to the other classes").range(0, 1);
    d.key("ema", &TrainSection::ema, "running average of the weights");
    d.key("nonfinite", &TrainSection::nonfinite, "what to do").choices({"stop", "skip"});
    d.check([](const TrainSection& spec, SpecIssues& issues) {
      if (!spec.max_epochs && !spec.max_steps && !spec.max_time) {
        issues.add("", "nothing says when to stop", "give max_epochs, max_steps or max_time");
      }
    });
  }
};
struct OptimizerSection {
  Choice rule{"adamw"};
  std::vector<std::string> no_decay{"bias", "norm"};
  static void describe(Description<OptimizerSection>& d) {
    d.choice("type", &OptimizerSection::rule, sample_rules(), "update rule");
    d.key("no_decay", &OptimizerSection::no_decay, "left out of weight decay").choices({"bias", "norm", "embedding"});
  }
};
struct ExpectSection {
  std::map<std::string, std::vector<double>> metrics;
  std::string source;
  static void describe(Description<ExpectSection>& d) {
    d.key("source", &ExpectSection::source, "where the figures are from");
    d.pattern("val/METRIC", &ExpectSection::metrics, "lowest and highest value").elements(2);
  }
};

struct SampleJob {
  int64_t schema = 1;
  std::string name = "run";
  int64_t seed = 1337;
  std::string output_dir = "runs/${name}";
  std::string precision = "fp32";
  ModelSection model;
  DataSection data;
  TrainSection train;
  OptimizerSection optimizer;
  std::map<std::string, std::string> env;
  std::optional<ExpectSection> expect;
  static void describe(Description<SampleJob>& d) {
    d.summary("a job");
    d.key("schema", &SampleJob::schema, "version of the keys").range(1, 1);
    d.key("name", &SampleJob::name, "name of the run").change(Change::safe);
    d.key("seed", &SampleJob::seed, "of all random numbers").at_least(0);
    d.key("output_dir", &SampleJob::output_dir, "the run folder").change(Change::safe);
    d.key("precision", &SampleJob::precision, "number format")
        .choices({"fp32", "bf16", "fp16"})
        .aliases({"mixed_precision"})
        .alias_flag("bf16", "bf16");
    d.key("model", &SampleJob::model, "the network").required();
    d.key("data", &SampleJob::data, "the data").required();
    d.key("train", &SampleJob::train, "the loop");
    d.key("optimizer", &SampleJob::optimizer, "the update rule").aliases({"optim"});
    d.key("env", &SampleJob::env, "environment variables").change(Change::safe);
    d.key("expect", &SampleJob::expect, "figures to reach").change(Change::safe);
  }
};

}  // namespace gputrain::config
