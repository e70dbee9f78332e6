// What is said of a pretrained model of which only the config.json is there, by `plan`, dry runs and `doctor`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Arguments = std::vector<std::string>;

Result run(const Arguments& arguments) { return gputrain(arguments, {{"OMP_NUM_THREADS", "1"}}); }

json printed(const Arguments& arguments) {
  const Result result = run(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

json config_of(const std::string& type, const json& more = json::object()) {
  json config{{"model_type", type},          {"hidden_size", 64},        {"num_hidden_layers", 2},
              {"vocab_size", 512},           {"num_attention_heads", 4}, {"num_key_value_heads", 2},
              {"rms_norm_eps", 1e-6},        {"hidden_act", "silu"},     {"intermediate_size", 128},
              {"rope_theta", 10000.0},       {"head_dim", 16},           {"max_position_embeddings", 64},
              {"tie_word_embeddings", false}};
  config.update(more);
  return config;
}

const json kExperts{
    {"num_experts", 8}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 32}, {"norm_topk_prob", true}};
const json kBert{{"model_type", "bert"},         {"hidden_size", 64},        {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},     {"intermediate_size", 128}, {"vocab_size", 40},
                 {"max_position_embeddings", 64}};
const json kTimm{{"architecture", "vit_tiny_patch16_224"}, {"pretrained_cfg", {{"input_size", {3, 32, 32}}}}};

const std::string kTexts = "data: {train: {format: synthetic, vocab_size: 512, samples: 256}}\n";
const std::string kLora = ", adapter: {type: lora, rank: 4, target_modules: all-linear}";
const std::string kPacked = ", quantize: {type: nf4}";

struct Kind {
  std::string name;
  json config;
  std::string model;  // more of the job's model
  std::string rest = kTexts;

  friend void PrintTo(const Kind& it, std::ostream* to) { *to << it.name; }
};

const Kind kKinds[] = {
    {"Llama", config_of("llama"), "type: gpt"},
    {"LlamaWithLora", config_of("llama"), "type: gpt" + kLora},
    {"QuantizedQwen", config_of("qwen3"), "type: gpt" + kLora + kPacked},
    {"ExpertsWithLora", config_of("qwen3_moe", kExperts), "type: gpt" + kLora},
    {"Experts", config_of("qwen3_moe", kExperts), "type: gpt"},
    {"Bert", kBert, "type: bert, config: {head: classifier}",
     "task: {type: text_classification}\ndata: {train: {format: csv, path: TEXTS}, text: {tokenizer: pretrained}}\n"},
    {"BertWithLora", kBert, "type: bert, config: {head: classifier}" + kLora,
     "task: {type: text_classification}\ndata: {train: {format: csv, path: TEXTS}, text: {tokenizer: pretrained}}\n"},
    {"Vit", kTimm, "type: vit_ti_16", "data: {train: {format: synthetic, samples: 256}, image: {size: 32}}\n"},
};

class ConfigAlone : public ::testing::Test {
 protected:
  /// Writes a job, and its model's folder without weights.
  std::string write_job(const Kind& kind) {
    folder_.write("base/config.json", kind.config.dump());
    std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (int i = 5; i < 40; ++i) words += "w" + std::to_string(i) + "\n";
    if (kind.name.starts_with("Bert")) folder_.write("base/vocab.txt", words);
    std::string table = "text,label\n", rest = kind.rest;
    for (int i = 0; i < 64; ++i) table += "w" + std::to_string(5 + i % 30) + " w7," + std::to_string(i % 2) + "\n";
    const std::string texts = folder_.write("texts.csv", table);
    if (const size_t at = rest.find("TEXTS"); at != std::string::npos) rest.replace(at, 5, texts);
    return folder_.write("job.yaml", "schema: 1\nname: alone\ndevice: cpu\nprecision: fp32\nmodel: {" + kind.model +
                                         ", pretrained: " + folder_ / "base" + "}\n" + rest +
                                         "train: {max_steps: 1, global_batch_size: 4}\noptimizer: {type: adamw}\n");
  }
  /// Gives the folder weights: those of a run from scratch with these sizes.
  void add_weights(const std::string& sizes) {
    const std::string made = folder_ / "made";
    const Result result = run({"run", folder_ / "job.yaml", "--output-dir", made, "--set", "model.pretrained=null",
                               "--set", "model.config=" + sizes});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    fs::copy(made + "/model.safetensors", folder_ / "base");
  }
  TemporaryFolder folder_;
};

class ConfigAloneOfKinds : public ConfigAlone, public ::testing::WithParamInterface<Kind> {};

TEST_P(ConfigAloneOfKinds, SufficesForPlansDryRunsAndDoctor) {
  const std::string job = write_job(GetParam());
  const json plans = printed({"plan", job, "--device-memory", "8GiB", "--gpus", "4090", "--json"});
  EXPECT_GT(plans["plans"][0]["memory"]["total"], 0);
  const json dry = printed({"run", job, "--dry-run", "--world-size", "1", "--json"});
  EXPECT_TRUE(dry["first_loss"].is_null());
  for (const json& one : plans["candidates"]) {
    if (one["activation_checkpointing"] != "none" || one["micro_batch"] != 4) continue;
    for (const char* key : {"weights", "frozen_weights", "working_copy", "buffers", "gradients", "optimizer"})
      EXPECT_EQ(one["memory"][key], dry["memory"][key]) << key;
    const double activations = dry["memory"]["activations"];
    EXPECT_NEAR(one["memory"]["activations"].get<double>(), activations, 0.15 * activations);
  }
  const Result here = run({"run", job, "--dry-run", "--output-dir", folder_ / "out"});
  EXPECT_EQ(here.exit_code, 0) << here.err;
  EXPECT_THAT(here.out, AllOf(HasSubstr("1 rank on this machine"), HasSubstr("there are no weights beside"),
                              Not(HasSubstr("first loss"))));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  const Result doctor = run({"doctor", job});
  EXPECT_THAT(doctor.out, HasSubstr("one checkpoint is ")) << doctor.err;
}

INSTANTIATE_TEST_SUITE_P(All, ConfigAloneOfKinds, ::testing::ValuesIn(kKinds),
                         [](const auto& test) { return test.param.name; });

/// The same numbers as with the weights.
TEST_F(ConfigAlone, GivesTheNumbersThatWeightsGive) {
  const std::string llama =
      "{n_layer: 2, n_head: 4, n_kv_head: 2, n_embd: 64, n_inner: 128, block_size: 64, vocab_size: 512, "
      "position: rotary, norm: rmsnorm, activation: swiglu, tie_embeddings: false}";
  for (const auto& [kind, sizes] : {std::pair(kKinds[0], llama), std::pair(kKinds[7], std::string("{}"))}) {
    SCOPED_TRACE(kind.name);
    const std::string job = write_job(kind);
    const auto look = [&] {
      return json{{"plan", printed({"plan", job, "--device-memory", "8GiB", "--gpus", "4090", "--json"})},
                  {"dry", printed({"run", job, "--dry-run", "--world-size", "2", "--json"})}};
    };
    json alone = look();
    add_weights(sizes);
    json whole = look();
    EXPECT_TRUE(whole["dry"].contains("first_loss"));
    EXPECT_EQ(alone["plan"], whole["plan"]);
    json &predicted = alone["dry"]["memory"], &measured = whole["dry"]["memory"];
    const double activations = measured["activations"];
    EXPECT_NEAR(predicted["activations"].get<double>(), activations, 0.15 * activations);
    for (const char* key : {"weights", "gradients", "optimizer", "working_copy", "buffers"})
      EXPECT_EQ(predicted[key], measured[key]) << key;
    EXPECT_EQ(alone["dry"]["checkpoint"]["bytes"], whole["dry"]["checkpoint"]["bytes"]);
    fs::remove(folder_ / "base/model.safetensors");
    fs::remove_all(folder_ / "made");
  }
}

/// A folder that others have quantised already.
TEST_F(ConfigAlone, SaysHowWeightsArePublished) {
  const json four{{"quant_method", "bitsandbytes"},
                  {"load_in_4bit", true},
                  {"bnb_4bit_quant_type", "nf4"},
                  {"bnb_4bit_use_double_quant", true}};
  const auto memory = [&](const Kind& kind) {
    return printed(
        {"plan", write_job(kind), "--device-memory", "8GiB", "--gpus", "4090", "--json"})["plans"][0]["memory"];
  };
  const json published = memory({"Nf4", config_of("llama", {{"quantization_config", four}}), "type: gpt" + kLora});
  EXPECT_EQ(published, memory({"Packed", config_of("llama"), "type: gpt" + kLora + kPacked}));
  EXPECT_LT(published["frozen_weights"], memory({"Dense", config_of("llama"), "type: gpt" + kLora})["frozen_weights"]);
}

/// 70 billion weights, of which this machine could not hold a copy, with the positions of a long text.
TEST_F(ConfigAlone, IsEnoughOfALargeModel) {
  const json large = config_of("llama", {{"hidden_size", 8192},
                                         {"num_hidden_layers", 80},
                                         {"vocab_size", 128256},
                                         {"num_attention_heads", 64},
                                         {"num_key_value_heads", 8},
                                         {"head_dim", 128},
                                         {"intermediate_size", 28672},
                                         {"max_position_embeddings", 131072}});
  const std::string job =
      write_job({"Large", large, "type: gpt" + kLora + kPacked,
                 "data: {train: {format: synthetic, vocab_size: 128256, samples: 256}, text: {max_length: 512}}\n"});
  const Arguments bf16{"--set", "precision=bf16", "--set", "train.activation_checkpointing=block"};
  const auto with = [&](Arguments arguments) {
    arguments.insert(arguments.end(), bf16.begin(), bf16.end());
    return arguments;
  };
  const json plans = printed(with({"plan", job, "--device-memory", "80GiB", "--gpus", "h100", "--json"}));
  const Result dried = run(with({"run", job, "--dry-run", "--world-size", "1", "--device-memory", "80GiB", "--json"}));
  const json dry = json::parse(dried.out, nullptr, false);  // its disk may be too small
  ASSERT_TRUE(dry.is_object()) << dried.err;
  EXPECT_NEAR(dry["parameters"].get<double>(), 70.6e9, 0.3e9);
  const json& memory = plans["plans"][0]["memory"];
  for (const char* key : {"weights", "frozen_weights", "gradients", "optimizer"})
    EXPECT_EQ(memory[key], dry["memory"][key]) << key;
  const Result doctor = run({"doctor", job});
  EXPECT_THAT(doctor.out, HasSubstr("one checkpoint is ")) << doctor.err;
}

TEST_F(ConfigAlone, NamesTheFilesOfATokenizerThatAreMissing) {
  const std::string job = write_job(kKinds[5]);
  fs::remove(folder_ / "base/vocab.txt");
  for (const Arguments& verb :
       {Arguments{"plan", job, "--gpus", "4090"}, Arguments{"run", job, "--dry-run"}, Arguments{"doctor", job}}) {
    const Result result = run(verb);
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err, AllOf(HasSubstr("no tokenizer here"), HasSubstr("gputrain fetch NAME --no-weights")));
  }
}

TEST_F(ConfigAlone, IsNeededWhereThereAreNoWeights) {
  const std::string job = write_job(kKinds[0]);
  fs::remove(folder_ / "base/config.json");
  const Result result = run({"plan", job, "--gpus", "4090"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("there are no weights"), Not(HasSubstr("params"))));
}

}  // namespace
}  // namespace gputrain::testing_support
