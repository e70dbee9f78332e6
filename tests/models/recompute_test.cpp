// Recomputation in the backward pass must give the same results and must save memory.
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "../../src/models/images/vit.hpp"
#include "../../src/models/texts/encoder.hpp"
#include "../../src/models/texts/gpt.hpp"
#include "gputrain/device/host_allocator.hpp"
#include "gputrain/device/offload.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/models/model.hpp"
#include "models/small_job.hpp"
#include "support/batches.hpp"

namespace gputrain::models {
namespace {

using nn::Recompute;
using Tensors = std::map<std::string, at::Tensor>;

constexpr int64_t kSymbols = 7;

/// A model name as in a job, and options that make it small or random.
struct Kind {
  std::string name;
  GptSpec gpt;            // for a gpt
  EncoderSpec bert = {};  // for a bert
  VitSpec vit = {};       // for a vit
  std::string config{};   // for others, as in a job
  int64_t side = 32;      // of images
  bool has_masks = false;

  bool is_text() const { return name == "gpt" || name == "bert"; }

  friend void PrintTo(const Kind& it, std::ostream* to) { *to << it.name; }
};

GptSpec small_gpt2() { return {.n_layer = 3, .n_head = 2, .n_embd = 32, .dropout = 0.2}; }

GptSpec small_llama() {
  return {.n_layer = 3,
          .n_head = 4,
          .n_kv_head = 2,
          .n_embd = 32,
          .dropout = 0.1,
          .position = "rotary",
          .norm = "rmsnorm",
          .activation = "swiglu",
          .tie_embeddings = false};
}

GptSpec without_dropout() {
  GptSpec spec = small_llama();
  spec.dropout = 0;
  return spec;
}

GptSpec with_experts() {
  GptSpec spec = small_llama();
  spec.n_expert = 6;
  return spec;
}

GptSpec with_relu() {
  GptSpec spec = small_gpt2();
  spec.activation = "relu";
  return spec;
}

EncoderSpec small_bert(const std::string& variant) {
  return {.variant = variant, .n_layer = 3, .n_head = 2, .n_embd = 32, .dropout = 0.2};
}

VitSpec small_vit() {
  return {.patch_size = 8,
          .n_layer = 3,
          .n_head = 2,
          .n_embd = 32,
          .dropout = 0.2,
          .attention_dropout = 0.1,
          .drop_path = 0.3};
}

std::unique_ptr<Model> make(const Kind& kind, const nn::Context& context) {
  const bool is_text = kind.is_text();
  auto options = catalog().find(kind.name)->schema->create();
  if (kind.name == "gpt") *static_cast<GptSpec*>(options.get()) = kind.gpt;
  if (kind.name == "bert") *static_cast<EncoderSpec*>(options.get()) = kind.bert;
  if (kind.name == "vit") *static_cast<VitSpec*>(options.get()) = kind.vit;
  config::Choice choice{kind.name, options};
  if (!kind.config.empty()) {
    choice =
        load_job("model: {type: " + kind.name + ", config: {" + kind.config + "}}\n").as<SmallJob>().model.architecture;
  }
  const auto shape = is_text ? std::vector<int64_t>{6} : std::vector<int64_t>{3, kind.side, kind.side};
  auto model = catalog().make(choice, context, {.input_shape = shape, .num_classes = kSymbols});
  nn::initialize(*model, 7);
  return model;
}

/// Everything a step changes: loss, gradients, buffers and the random state.
Tensors step(const Kind& kind, const nn::Context& context) {
  const auto model = make(kind, context);
  device::seed_generators(at::kCPU, 11);
  const auto labels = at::TensorOptions().dtype(at::kLong);
  const bool is_text = kind.is_text();
  const std::vector<int64_t> sizes = is_text          ? std::vector<int64_t>{4, 6}
                                     : kind.has_masks ? std::vector<int64_t>{4, kind.side, kind.side}
                                                      : std::vector<int64_t>{4};
  const at::Tensor targets = at::randint(kSymbols, sizes, labels);
  const Batch batch = testing_support::batch_of(
      is_text ? at::randint(kSymbols, {4, 6}, labels)
              : at::randn({4, 3, kind.side, kind.side}, at::TensorOptions().dtype(context.policy.master)),
      targets);
  Tensors left;
  for (int pass = 0; pass < 2; ++pass) {  // the second pass detects lost state
    const at::Tensor loss = testing_support::loss_of(*model, batch, 0.1).weighted;
    loss.backward();
    left["loss" + std::to_string(pass)] = loss.detach();
  }
  model->each_parameter(
      [&](const std::string& name, nn::Parameter& parameter) { left[name] = parameter.value.grad(); });
  model->each_buffer([&](const std::string& name, nn::Buffer& buffer) { left[name] = buffer.value; });
  left["random state"] = device::generator_state(at::kCPU);
  return left;
}

class Recomputing : public testing::TestWithParam<std::pair<const char*, Kind>> {};
INSTANTIATE_TEST_SUITE_P(
    Models, Recomputing,
    testing::Values(
        std::pair<const char*, Kind>("Gpt2", {"gpt", small_gpt2()}),
        std::pair<const char*, Kind>("Gpt2WithRelu", {"gpt", with_relu()}),
        std::pair<const char*, Kind>("Llama", {"gpt", small_llama()}),
        std::pair<const char*, Kind>("LlamaWithoutDropout", {"gpt", without_dropout()}),
        std::pair<const char*, Kind>("Experts", {"gpt", with_experts()}),
        std::pair<const char*, Kind>("Bert", {"bert", {}, small_bert("bert")}),
        std::pair<const char*, Kind>("ModernBert", {"bert", {}, small_bert("modernbert")}),
        std::pair<const char*, Kind>("Resnet18", {"resnet18", {}}),
        std::pair<const char*, Kind>("Convnet", {"convnet", {}}),
        std::pair<const char*, Kind>("Vit", {"vit", {}, {}, small_vit()}),
        std::pair<const char*, Kind>("Convnext", {.name = "convnext",
                                                  .gpt = {},
                                                  .config = "blocks: [1, 2], channels: [16, 24], "
                                                            "drop_path: 0.3"}),
        std::pair<const char*, Kind>(
            "Unet", {.name = "unet", .gpt = {}, .config = "channels: [8, 12, 16]", .side = 18, .has_masks = true}),
        // An image of one pixel is in both memory orders: gradients of the last blocks would be rounded otherwise.
        std::pair<const char*, Kind>("MobilenetV3", {.name = "mobilenet_v3_small", .gpt = {}, .side = 64})),
    [](const auto& entry) { return entry.param.first; });

void expect_equal_steps(const Kind& kind, const nn::Context& plain) {
  const Tensors expected = step(kind, plain);
  for (const auto how : {Recompute::selective, Recompute::block, Recompute::offloaded_block}) {
    nn::Context context = plain;
    context.recompute = how;
    if (!catalog().abilities(catalog().with_defaults(kind.name)).recomputes(how)) continue;
    const Tensors actual = step(kind, context);
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      EXPECT_TRUE(actual.at(name).equal(tensor))
          << name << ", " << plain.policy.compute << ", " << static_cast<int>(how);
    }
  }
}

TEST_P(Recomputing, KeepsEveryBitOfAStep) {
  const Kind& kind = GetParam().second;
  for (const auto& [precision, logits_bytes] : {std::pair(ops::Precision::fp32, 1000),
                                                {ops::Precision::bf16, 1000},
                                                {ops::Precision::bf16, 100},
                                                {ops::Precision::fp64, 1000}}) {
    nn::Context plain{.policy = ops::policy_of(precision), .logits_bytes = logits_bytes};
    expect_equal_steps(kind, plain);
    plain.channels_last = true;
    if (!kind.is_text()) expect_equal_steps(kind, plain);
  }
}

/// Bytes of large blocks that a forward pass keeps.
int64_t held_by_forward(Recompute how, bool with_backward) {
  const GptSpec spec{.n_layer = 12, .n_head = 4, .n_embd = 128};
  Gpt model(spec, {.recompute = how}, {.input_shape = {128}, .num_classes = kSymbols});
  nn::initialize(model, 7);
  const auto labels = at::TensorOptions().dtype(at::kLong);
  const at::Tensor tokens = at::randint(kSymbols, {8, 128}, labels);
  const Batch batch = testing_support::batch_of(tokens, at::randint(kSymbols, {8, 128}, labels));
  const int64_t before = device::host_allocator_facts().in_use_bytes;
  const at::Tensor loss = testing_support::loss_of(model, batch).weighted;
  if (with_backward) loss.backward();
  return device::host_allocator_facts().in_use_bytes - before;
}

TEST(RecomputingMemory, IsAFractionOfThePlainPass) {
  device::install_host_allocator();
  const auto block = static_cast<double>(held_by_forward(Recompute::block, false));
  const double block_peak = static_cast<double>(device::host_allocator_facts().peak_in_use_bytes);
  const auto selective = static_cast<double>(held_by_forward(Recompute::selective, false));
  const auto plain = static_cast<double>(held_by_forward(Recompute::none, false));
  const double plain_peak = static_cast<double>(device::host_allocator_facts().peak_in_use_bytes);
  constexpr double kOne = 8 * 128 * 128 * sizeof(float);  // what a block reads
  EXPECT_NEAR(block / kOne, 14, 0.5);                     // of 12 blocks, the last norm and the head
  EXPECT_LE(selective, 0.75 * plain);
  EXPECT_LE(block_peak, 0.4 * plain_peak);
}

TEST(RecomputingMemory, OfBlockInputsIsThatOfTheHost) {
  device::install_host_allocator();
  device::give_back_offload_memory();
  const auto offloaded = static_cast<double>(held_by_forward(Recompute::offloaded_block, false));
  constexpr double kOne = 8 * 128 * 128 * sizeof(float);
  EXPECT_NEAR(offloaded / kOne, 3, 0.5);  // of the last block, the last norm and the head
  EXPECT_EQ(device::offload_bytes(), 12 * static_cast<int64_t>(kOne));
  held_by_forward(Recompute::offloaded_block, true);
  EXPECT_EQ(device::offload_bytes(), 12 * static_cast<int64_t>(kOne)) << "memory is used again";
  device::give_back_offload_memory();
  EXPECT_EQ(device::offload_bytes(), 0);
}

TEST(RecomputingMemory, IsReleasedAfterBackward) {
  device::install_host_allocator();
  const int64_t plain = held_by_forward(Recompute::none, true);
  EXPECT_LE(held_by_forward(Recompute::block, true), plain);
  EXPECT_LE(held_by_forward(Recompute::offloaded_block, true), plain);
  std::thread([&] { EXPECT_LE(held_by_forward(Recompute::selective, true), plain); }).join();
}

TEST(RecomputingMemory, IsReleasedWithoutBackward) {
  device::install_host_allocator();
  std::thread([] {  // a fresh thread: no leftovers of other passes
    const int64_t before = device::host_allocator_facts().in_use_bytes;
    held_by_forward(Recompute::selective, false);
    EXPECT_LE(device::host_allocator_facts().in_use_bytes, before);
  })
      .join();
}

}  // namespace
}  // namespace gputrain::models
