#include <limits>
#include <map>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "models/weights.hpp"

namespace gputrain::models {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(LoadWeights, FillsEveryParameterFromAnotherType) {
  Tiny tiny;
  load_weights(tiny.model, source_of(tiny.tensors));
  tiny.model.each_parameter([](const std::string& name, nn::Parameter& parameter) {
    EXPECT_EQ(parameter.value.scalar_type(), at::kFloat);
    EXPECT_TRUE((parameter.value == 0.25).all().item<bool>()) << name;
    EXPECT_TRUE(parameter.value.requires_grad()) << name;
  });
}

std::string refusal(Tiny& tiny, const TensorSource& source) {
  try {
    load_weights(tiny.model, source);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.what();
  }
  return "accepted";
}

TEST(LoadWeights, ReadsBareTransformerWithMasksAndTiedHead) {
  Tiny tiny;
  std::map<std::string, at::Tensor> bare;
  for (const auto& [name, tensor] : tiny.tensors) bare[name.substr(std::string("transformer.").size())] = tensor;
  bare["h.0.attn.bias"] = at::ones({1, 1, 4, 4});
  bare["h.0.attn.masked_bias"] = at::ones({});
  load_weights(tiny.model, source_of(bare));
  tiny.tensors["lm_head.weight"] = at::full({5, 8}, 0.25);
  load_weights(tiny.model, source_of(tiny.tensors));
}

// Some writers leave out the one of two tied tensors, some the other.
TEST(LoadWeights, FillsTiedEmbeddingFromTheHead) {
  Tiny tiny;
  tiny.tensors["lm_head.weight"] = at::full({5, 8}, 0.5);
  tiny.tensors.erase("transformer.wte.weight");
  load_weights(tiny.model, source_of(tiny.tensors));
  tiny.model.each_parameter([](const std::string& name, nn::Parameter& parameter) {
    const bool is_tied = name == "transformer.wte.weight";
    EXPECT_TRUE((parameter.value == (is_tied ? 0.5 : 0.25)).all().item<bool>()) << name;
  });
}

// transformers unties such a model.
TEST(LoadWeights, RefusesTiedHeadWithOtherValues) {
  Tiny tiny;
  tiny.tensors["lm_head.weight"] = at::full({5, 8}, 0.5);
  EXPECT_THAT(refusal(tiny, source_of(tiny.tensors)),
              AllOf(HasSubstr("1 tied in the model but different here: lm_head.weight and transformer.wte.weight"),
                    HasSubstr("\"tie_word_embeddings\": false")));
}

TEST(LoadWeights, ReadsBareAndTiedLlama) {
  Gpt llama({.n_layer = 1, .n_head = 2, .n_embd = 8, .position = "rotary", .norm = "rmsnorm", .activation = "swiglu"},
            {}, {.input_shape = {4}, .num_classes = 5});
  std::map<std::string, at::Tensor> tensors;
  llama.each_parameter([&](const std::string& name, nn::Parameter& p) {
    tensors[name.substr(std::string("model.").size())] = at::full(p.value.sizes(), 0.25);
  });
  tensors["layers.0.self_attn.rotary_emb.inv_freq"] = at::ones({2});
  load_weights(llama, source_of(tensors));
  tensors["lm_head.weight"] = at::full({5, 8}, 0.5);
  EXPECT_THROW(load_weights(llama, source_of(tensors)), Error);
}

TEST(LoadWeights, TakesOffPrefixOfAllNames) {
  for (const std::string prefix : {"module.", "_orig_mod.module.", "model.", "net.backbone."}) {
    Tiny tiny;
    std::map<std::string, at::Tensor> wrapped;
    for (const auto& [name, tensor] : tiny.tensors) wrapped[prefix + name] = tensor;
    load_weights(tiny.model, source_of(wrapped));
    tiny.model.each_parameter([](const std::string& name, nn::Parameter& parameter) {
      EXPECT_TRUE((parameter.value == 0.25).all().item<bool>()) << name;
    });
    wrapped["loss.weight"] = at::ones({1});
    EXPECT_THAT(refusal(tiny, source_of(wrapped)), HasSubstr("take '" + prefix + "' off the names that have it"));
  }
}

TEST(LoadWeights, TakesOffPrefixOfAnMlpToo) {
  OtherHead same(3);
  std::map<std::string, at::Tensor> wrapped;
  for (const auto& [name, tensor] : same.tensors) wrapped["model." + name] = tensor;
  load_weights(*same.model, source_of(wrapped));
  same.model->each_parameter([](const std::string& name, nn::Parameter& parameter) {
    EXPECT_TRUE((parameter.value == 0.25).all().item<bool>()) << name;
  });
}

TEST(LoadWeights, CastsFloatsOf16To64Bits) {
  for (const auto type : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    Tiny tiny;
    tiny.tensors["transformer.ln_f.bias"] = at::full({8}, 0.5, type);
    load_weights(tiny.model, source_of(tiny.tensors));
    tiny.model.each_parameter([](const std::string& name, nn::Parameter& p) {
      EXPECT_EQ(p.value.mean().item<double>(), name == "transformer.ln_f.bias" ? 0.5 : 0.25);
    });
  }
}

TEST(LoadWeights, RefusesQuantisedNumbers) {
  for (const auto type : {at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kChar, at::kInt, at::kBool}) {
    Tiny tiny;
    tiny.tensors["transformer.ln_f.bias"] = at::ones({8}).to(type);
    EXPECT_THAT(
        refusal(tiny, source_of(tiny.tensors)),
        AllOf(HasSubstr("1 of another kind of number: transformer.ln_f.bias " + std::string(at::toString(type))),
              HasSubstr("integers and 8-bit floats are not read")));
  }
}

TEST(LoadWeights, WarnsOfMatricesOfOneValue) {
  Tiny tiny;
  for (auto& [name, tensor] : tiny.tensors) {
    if (tensor.dim() > 1) tensor = at::arange(tensor.numel()).to(tensor.scalar_type()).reshape(tensor.sizes());
  }
  const auto warning = [&] {
    testing::internal::CaptureStderr();
    load_weights(tiny.model, source_of(tiny.tensors));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning(), "") << "biases and the weights of norms may hold one value";
  tiny.tensors["transformer.h.0.mlp.c_fc.weight"].zero_();
  EXPECT_THAT(warning(), HasSubstr("w/model.safetensors: tensor 'transformer.h.0.mlp.c_fc.weight' holds 0 everywhere"));
  tiny.tensors["transformer.wpe.weight"].fill_(0.5);
  EXPECT_THAT(warning(), HasSubstr("(the first of 2 such tensors)"));
}

TEST(LoadWeights, NamesTensorAndFileOfValuesNotFinite) {
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    Tiny tiny;
    tiny.tensors["transformer.ln_f.bias"] = at::full({8}, 0.5, at::kBFloat16);
    tiny.tensors["transformer.ln_f.bias"][5] = value;
    TensorSource source = source_of(tiny.tensors);
    EXPECT_THAT(refusal(tiny, source),
                HasSubstr("w/model.safetensors: tensor 'transformer.ln_f.bias' holds NaN or infinite values"));
    source.file_of = [](const std::string& name) { return "w/shard of " + name; };
    EXPECT_THAT(refusal(tiny, source), HasSubstr("w/shard of transformer.ln_f.bias: tensor"));
  }
  Tiny tiny;
  tiny.tensors["transformer.ln_f.bias"] = at::full({8}, 1e200, at::kDouble);
  EXPECT_THAT(refusal(tiny, source_of(tiny.tensors)),
              HasSubstr("'transformer.ln_f.bias' holds values too large for Float"));
}

TEST(LoadWeights, GivesTheSourcesHintForSizes) {
  Tiny tiny;
  tiny.tensors["transformer.wte.weight"] = at::ones({6, 8});
  TensorSource source = source_of(tiny.tensors);
  EXPECT_THAT(refusal(tiny, source), HasSubstr("model.config that the weights were trained with"));
  source.sizes_hint = "the folder";
  EXPECT_THAT(refusal(tiny, source), HasSubstr("try: the folder"));
}

TEST(LoadWeights, ReportsAllMisfitsAndWritesNothing) {
  Tiny tiny;
  tiny.tensors.erase("transformer.ln_f.bias");
  tiny.tensors["transformer.h.0.extra"] = at::ones({1});
  tiny.tensors["transformer.wte.weight"] = at::ones({6, 8});
  tiny.tensors["transformer.wpe.weight"] = at::zeros({4, 8}, at::kLong);
  std::map<std::string, at::Tensor> before;
  tiny.model.each_parameter([&](const std::string& name, nn::Parameter& p) { before[name] = p.value.clone(); });
  try {
    load_weights(tiny.model, source_of(tiny.tensors));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("w/model.safetensors"), HasSubstr("1 missing in the file: transformer.ln_f.bias"),
                      HasSubstr("1 unknown to the model: transformer.h.0.extra"),
                      HasSubstr("transformer.wte.weight [6, 8], the model has [5, 8]"),
                      HasSubstr("1 of another kind of number: transformer.wpe.weight Long")));
  }
  tiny.model.each_parameter(
      [&](const std::string& name, nn::Parameter& p) { EXPECT_TRUE(p.value.equal(before.at(name))) << name; });
}

// torchvision published its ResNets before batch norms had a batch counter.
TEST(LoadWeights, DoesWithoutBatchNormCounters) {
  const auto model =
      build(load_job("model: {type: resnet18, config: {stem: cifar}}"), {.input_shape = {8, 8, 3}, .num_classes = 3});
  nn::initialize(*model, 1);
  std::map<std::string, at::Tensor> tensors;
  model->each_parameter([&](const std::string& name, nn::Parameter& p) { tensors[name] = at::ones_like(p.value); });
  model->each_buffer([&](const std::string& name, nn::Buffer& buffer) {
    if (!name.ends_with("num_batches_tracked")) tensors[name] = at::ones_like(buffer.value);
  });
  load_weights(*model, source_of(tensors));
  model->each_buffer([&](const std::string& name, nn::Buffer& buffer) {
    EXPECT_EQ(buffer.value.sum().item<double>() == 0, name.ends_with("num_batches_tracked")) << name;
  });
  tensors.erase("bn1.running_mean");
  EXPECT_THROW(load_weights(*model, source_of(tensors)), Error);
}

TEST(LoadWeights, LeavesOutOtherLastLayerWhenAsked) {
  OtherHead other(7);
  std::map<std::string, at::Tensor> before;
  other.model->each_parameter([&](const std::string& name, nn::Parameter& p) { before[name] = p.value.clone(); });
  EXPECT_EQ(load_weights(*other.model, source_of(other.tensors), OtherClasses::left_out).classes_left_out, 7);
  int left = 0;
  other.model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    const bool is_last = p.value.size(0) == 3;
    left += is_last ? 1 : 0;
    EXPECT_TRUE(is_last ? p.value.equal(before.at(name)) : (p.value == 0.25).all().item<bool>()) << name;
  });
  EXPECT_EQ(left, 2);
  EXPECT_THROW(load_weights(*other.model, source_of(other.tensors)), Error);
}

std::string channels_refusal(int64_t theirs, int64_t ours, OtherClasses other_classes) {
  const auto job = load_job("model: {type: resnet18, config: {width: 8}}");
  const auto model = build(job, {.input_shape = {ours, 8, 8}, .num_classes = 3});
  const auto file = build(job, {.input_shape = {theirs, 8, 8}, .num_classes = 3});
  nn::initialize(*file, 1);
  std::map<std::string, at::Tensor> tensors;
  file->each_parameter([&](const std::string& name, nn::Parameter& p) { tensors[name] = p.value.detach(); });
  file->each_buffer([&](const std::string& name, nn::Buffer& buffer) { tensors[name] = buffer.value; });
  try {
    const NotLoaded found = load_weights(*model, source_of(tensors), other_classes);
    EXPECT_EQ(found.sums_colours, theirs != ours);
    model->each_parameter([&](const std::string& name, nn::Parameter& p) {
      const at::Tensor expected = p.value.dim() == 4 ? tensors[name].sum(at::IntArrayRef{1}, true) : tensors[name];
      if (name == "conv1.weight") {
        EXPECT_TRUE(p.value.allclose(expected));
      } else {
        EXPECT_TRUE(p.value.equal(tensors[name])) << name;
      }
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LoadWeights, SumsTheColoursOfTheFirstLayerForGreyImages) {
  EXPECT_EQ(channels_refusal(3, 1, OtherClasses::left_out), "accepted");
  EXPECT_THAT(channels_refusal(3, 1, OtherClasses::refused), HasSubstr("data.image.channels: 3"));
  EXPECT_THAT(channels_refusal(1, 3, OtherClasses::left_out), HasSubstr("data.image.channels: 1"));
  EXPECT_THAT(channels_refusal(4, 3, OtherClasses::left_out),
              AllOf(HasSubstr("images of 4 channels"), HasSubstr("read with 1 or 3")));
}

TEST(LoadWeights, NamesTimmWhereItsNamesAreUnknown) {
  const auto model =
      build(load_job("model: {type: mobilenet_v3_small}"), {.input_shape = {3, 32, 32}, .num_classes = 3});
  try {
    load_weights(*model, source_of({{"conv_stem.weight", at::ones({16, 3, 3, 3})}}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("timm"), HasSubstr("ConvNeXts are read")));
  }
}

TEST(LoadWeights, LeavesOutNothingElse) {
  OtherHead other(7, 5);
  EXPECT_THROW(load_weights(*other.model, source_of(other.tensors), OtherClasses::left_out), Error);
  OtherHead same(3);
  EXPECT_EQ(load_weights(*same.model, source_of(same.tensors), OtherClasses::left_out).classes_left_out, 0);
}

}  // namespace
}  // namespace gputrain::models
