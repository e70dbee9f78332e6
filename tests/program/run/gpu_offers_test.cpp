// `gputrain plan` for kinds of GPUs: what suffices, how long it takes, what it costs; and memory beside that of real
// steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Arguments = std::vector<std::string>;

/// A decoder of 2.6 billion weights: 47 GB with their gradients and AdamW's state.
const std::string kLarge =
    "{n_layer: 26, n_head: 16, n_kv_head: 4, n_embd: 3072, n_inner: 8192, block_size: 512, vocab_size: 4096, "
    "position: rotary, norm: rmsnorm, activation: swiglu}";

class GpuOffers : public ::testing::Test {
 protected:
  Result plan(Arguments more, const std::string& job) {
    more.insert(more.begin(), {"plan", job});
    return gputrain(more, {{"OMP_NUM_THREADS", "1"}});
  }
  std::string write_large() {
    return folder_.write("large.yaml", "schema: 1\nprecision: bf16\nmodel: {type: gpt, config: " + kLarge +
                                           "}\ndata: {train: {format: synthetic, vocab_size: 4096, samples: 4096}}\n"
                                           "train: {max_steps: 500, global_batch_size: 4}\n"
                                           "optimizer: {type: adamw, lr: 1e-4}\n");
  }
  /// The offers of these GPUs for the large model, made once.
  const json& offers() {
    static const json made = [&] {
      const Result result =
          plan({"--gpus", "4090=0.5,a100-40,h100=2.5", "--gpus", "a100-80=1.5", "--json"}, write_large());
      EXPECT_EQ(result.exit_code, 0) << result.err;
      return json::parse(result.out, nullptr, false);
    }();
    return made;
  }
  const json& offer(const std::string& name) {
    for (const json& one : offers()["gpus"])
      if (one["name"] == name) return one;
    ADD_FAILURE() << name;
    return offers();
  }
  TemporaryFolder folder_;
};

TEST_F(GpuOffers, SayWhichGpusSuffice) {
  EXPECT_FALSE(offer("4090")["fits"]);
  EXPECT_FALSE(offer("a100-40")["fits"]);
  EXPECT_TRUE(offer("a100-80")["fits"]);
  EXPECT_TRUE(offer("h100")["fits"]);
  EXPECT_EQ(offer("4090")["device_memory_bytes"], 24'000'000'000);
  EXPECT_GT(offer("a100-40")["plan"]["memory"]["total"], 38e9);
  EXPECT_LT(offer("a100-80")["plan"]["memory"]["total"], 76e9);
}

TEST_F(GpuOffers, CountHoursAndDollarsOfTheWholeJob) {
  for (const char* name : {"a100-80", "h100"}) {
    const json& one = offer(name);
    const double seconds = 500 * one["plan"]["seconds"]["step"].get<double>();
    EXPECT_NEAR(one["seconds"].get<double>(), seconds, 1e-6 * seconds) << name;
    const double dollars = seconds / 3600 * one["dollars_per_hour"].get<double>();
    EXPECT_NEAR(one["dollars"].get<double>(), dollars, 1e-6 * dollars) << name;
  }
  EXPECT_LT(offer("h100")["seconds"], offer("a100-80")["seconds"]);
  EXPECT_EQ(offers()["fastest"], "h100");
  // 989 TFLOP/s for 2.5 dollars an hour are more for the money than 312 for 1.5.
  EXPECT_EQ(offers()["cheapest"], "h100");
  EXPECT_TRUE(offer("4090")["dollars"].is_null());
  EXPECT_TRUE(offer("a100-40")["dollars_per_hour"].is_null());
}

TEST_F(GpuOffers, PrintOneLineForEachAndSettingsToPaste) {
  const Result result = plan({"--gpus", "l40s=0.8,a100-80=1.5"}, write_large());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("\nl40s "), HasSubstr("\na100-80 "), HasSubstr("dollars/h"),
                                HasSubstr("a100-80 is the cheapest that fits, with "),
                                HasSubstr("parallel: {shard: none}"), HasSubstr("train:\n  micro_batch_size: ")));
  const Result unpriced = plan({"--gpus", "a100-80,h200"}, write_large());
  EXPECT_THAT(unpriced.out,
              AllOf(HasSubstr("h200 is the fastest that fits"), Not(HasSubstr("the cheapest that fits"))));
}

TEST_F(GpuOffers, SayWhatNeedsLessWhereNoneSuffices) {
  const Result result = plan({"--gpus", "4090=0.5,l4=0.2"}, write_large());
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.out, AllOf(HasSubstr("\n4090 "), HasSubstr("no "), Not(HasSubstr("micro_batch_size"))));
  EXPECT_THAT(result.err, AllOf(HasSubstr("none of these GPUs suffices: 4090 has the most memory, 22.4 GiB"),
                                HasSubstr("optimizer.master, optimizer.type: adamw8bit"), Not(HasSubstr("adapter"))));
}

TEST_F(GpuOffers, CountTheOthersWhereAKindLacksAPrecisionOrLinks) {
  const std::string job = write_large();
  const Arguments small{"--set", "model.config.n_layer=1"};
  const auto printed = [&](Arguments arguments) {
    arguments.insert(arguments.end(), small.begin(), small.end());
    const Result result = plan(arguments, job);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(printed({"--gpus", "v100=0.5,4090=0.4"}),
              AllOf(HasSubstr("\nv100  14.9 GiB  ?    no bf16 units; try --set precision=fp16\n4090  22.4 GiB  yes "),
                    HasSubstr("\n4090 is the cheapest that fits")));
  EXPECT_THAT(printed({"--gpus", "v100", "--set", "precision=fp16"}), HasSubstr("of v100, 14.9 GiB"));
  EXPECT_THAT(printed({"--gpus", "v100,4090", "--set", "optimizer.master=bf16"}), HasSubstr("?    no bf16 units\n"));
  const json page = json::parse(printed({"--gpus", "4090=0.4,a100", "--world-size", "2", "--json"}));
  const json& left_out = page["gpus"][0];
  EXPECT_EQ(left_out["not_counted"], "no known rate between GPUs; try --world-size 1");
  for (const char* const key : {"fits", "plan", "seconds", "dollars"}) EXPECT_TRUE(left_out[key].is_null()) << key;
  EXPECT_TRUE(page["gpus"][1]["not_counted"].is_null());
  EXPECT_TRUE(page["gpus"][1]["fits"]);
  EXPECT_EQ(page["fastest"], "a100");
}

TEST_F(GpuOffers, RefuseWhatIsNotKnown) {
  const auto refused = [&](const Arguments& arguments, const std::string& why, const std::string& hint) {
    const Result result = plan(arguments, write_large());
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, AllOf(HasSubstr(why), HasSubstr(hint)));
  };
  refused({"--gpus", "4090=cheap"}, "--gpus 4090=cheap is not a kind of GPU with the dollars of an hour", "4090=0.40");
  refused({"--gpus", "=1"}, "--gpus =1 is not a kind of GPU", "4090=0.40");
  refused({"--gpus", "4090,4080"}, "the rates of --gpus 4080 are not known", "4090, 3090");
  refused({"--gpus", "v100,4080"}, "the rates of --gpus 4080 are not known", "4090, 3090");
  refused({"--gpus", "4090", "--world-size", "2"}, "4090 has no known rate between GPUs",
          "--world-size 1, or --bench-comm");
  refused({"--gpus", "v100"}, "v100 has no bf16 units", "--set precision=fp16, or measured steps by --bench-train");
  refused({"--gpus", "4090,l4", "--world-size", "2"},
          "4090 has no known rate between GPUs; l4 has no known rate between GPUs", "--world-size 1");
  refused({"--gpus", "v100=0.5,v100", "--set", "optimizer.master=bf16"}, "v100 has no bf16 units",
          "another kind of GPU");
  refused({"--gpus", "4090,h100", "--bench-train", "x.json"}, "measured files are of one kind of GPU", "--gpus 4090");
}

/// Bytes of a matrix in nf4 whose scales are quantised too.
int64_t nf4_bytes(int64_t weights) {
  const int64_t scales = weights / 64;
  return weights / 2 + scales + 4 * ((scales + 255) / 256) + 4;
}

// Before anything but the config.json is downloaded.
TEST_F(GpuOffers, PlanAPretrainedModelWhoseWeightsAreNotThere) {
  const std::string base = folder_ / "base";
  folder_.write("base/config.json",
                R"({"model_type": "qwen3", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
                    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 4096,
                    "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
                    "tie_word_embeddings": false})");
  const std::string job = folder_.write(
      "qlora.yaml", "schema: 1\nprecision: bf16\nmodel: {type: gpt, pretrained: " + base +
                        ", adapter: {type: lora, rank: 16}, quantize: {type: nf4}}\n"
                        "data: {train: {format: synthetic, vocab_size: 4096, samples: 4096}}\n"
                        "train: {max_steps: 5, global_batch_size: 4}\noptimizer: {type: adamw, lr: 1e-4}\n");
  const Result result = plan({"--gpus", "4090", "--json"}, job);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json page = json::parse(result.out);
  const int64_t packed = 4 * (3 * nf4_bytes(512 * 1024) + 2 * nf4_bytes(512 * 512) + 2 * nf4_bytes(512 * 256));
  const int64_t kept = 2 * 2 * 4096 * 512;  // embedding and head in bf16
  const auto frozen = page["plans"][0]["memory"]["frozen_weights"].get<double>();
  EXPECT_NEAR(frozen, static_cast<double>(packed + kept), 0.005 * frozen);
  EXPECT_THAT(page["activations"].get<std::string>(), HasSubstr("scaled from decoders of 2 blocks"));
}

}  // namespace
}  // namespace gputrain::testing_support
