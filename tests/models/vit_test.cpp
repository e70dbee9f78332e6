#include "../../src/models/images/vit.hpp"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/models/image_layouts.hpp"
#include "gputrain/models/pretrained.hpp"
#include "models/small_job.hpp"
#include "models/weights.hpp"
#include "ops/compare.hpp"

namespace gputrain::models {
namespace {

using testing::HasSubstr;
using testing_support::random_leaf;

std::unique_ptr<Model> vit_of(const std::string& options, std::vector<int64_t> image = {3, 16, 16},
                              int64_t classes = 5) {
  const std::string small = "patch_size: 8, n_layer: 2, n_head: 2, n_embd: 8";
  auto model =
      build(load_job("model: {type: vit, config: {" + small + (options.empty() ? "" : ", ") + options + "}}\n"),
            {.input_shape = std::move(image), .num_classes = classes});
  nn::initialize(*model, 3);
  return model;
}

std::map<std::string, at::Tensor> file_of(Model& model) {
  std::map<std::string, at::Tensor> tensors;
  const auto family = family_of(model);
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    tensors[family->file_name_of(model, name)] = parameter.value.detach();
  });
  return tensors;
}

TEST(Vit, MatchesParameterAndOperationCountsOfPublishedModels) {
  const DataFacts images{.input_shape = {3, 224, 224}, .num_classes = 1000};
  struct VitCounts {
    std::string name;
    int64_t parameters;
    double billions;  // multiplications per image
  };
  for (const auto& [name, parameters, billions] : {VitCounts{"vit_ti_16", 5717416, 1.26},
                                                   {"vit_s_16", 22050664, 4.61},
                                                   {"vit_b_16", 86567656, 17.564},
                                                   {"vit", 86567656, 17.564}}) {
    const auto model =
        catalog().make({name, catalog().find(name)->schema->create()}, {.takes_no_memory = true}, images);
    int64_t count = 0;
    model->each_parameter([&](const std::string&, nn::Parameter& one) { count += one.value.numel(); });
    EXPECT_EQ(count, parameters) << name;
    EXPECT_NEAR(model->flops_per_sample() / 6e9 / billions, 1, 0.01) << name;
  }
}

TEST(Vit, RefusesImagesThatPatchesDoNotFill) {
  try {
    vit_of("", {3, 16, 20});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("16 x 20 cannot be cut into patches of 8 x 8"));
    EXPECT_THAT(error.what(), HasSubstr("data.image.size: [16, 24]"));
  }
  EXPECT_THROW(load_job("model: {type: vit, config: {n_head: 5}}\n"), Error);
  EXPECT_THROW(load_job("model: {type: vit, config: {layout: torchvision, pooling: mean}}\n"), Error);
}

TEST(Vit, ReadsBothLayoutsAndWritesItsOwn) {
  const auto torchvision = vit_of(""), timm = vit_of("layout: timm"), mean = vit_of("pooling: mean");
  EXPECT_TRUE(file_of(*torchvision).contains("encoder.layers.encoder_layer_1.self_attention.in_proj_weight"));
  EXPECT_TRUE(file_of(*timm).contains("blocks.1.attn.qkv.weight"));
  EXPECT_TRUE(file_of(*mean).contains("fc_norm.weight"));
  auto file = file_of(*torchvision);
  file.at("class_token").fill_(0.5);
  load_weights(*timm, source_of(file));
  const at::NoGradGuard no_grad;
  const at::Tensor images = random_leaf({2, 3, 16, 16}, 1, at::kFloat);
  EXPECT_TRUE(timm->forward(images).equal(torchvision->forward(images)));
  std::map<std::string, at::Tensor> old;  // before torchvision 0.14
  for (const auto& [name, tensor] : file) {
    std::string renamed = name;
    for (const auto& [now, before] : {std::pair{"mlp.0.", "mlp.linear_1."}, std::pair{"mlp.3.", "mlp.linear_2."}}) {
      const size_t place = renamed.find(now);
      if (place != std::string::npos) renamed.replace(place, std::string(now).size(), before);
    }
    old[renamed] = tensor;
  }
  EXPECT_FALSE(old.contains("encoder.layers.encoder_layer_1.mlp.0.weight"));
  const auto another = vit_of("n_inner: 32");
  load_weights(*another, source_of(old));
  EXPECT_TRUE(another->forward(images).equal(torchvision->forward(images)));
}

TEST(Vit, LeavesOutHeadOfOtherClasses) {
  const auto theirs = vit_of("", {3, 16, 16}, 9), ours = vit_of("");
  EXPECT_THROW(load_weights(*ours, source_of(file_of(*theirs))), Error);
  const NotLoaded left = load_weights(*ours, source_of(file_of(*theirs)), OtherClasses::left_out);
  EXPECT_EQ(left.classes_left_out, 9);
}

TEST(Vit, FitsPositionsOfOtherImageSizes) {
  const auto square = vit_of("", {3, 24, 24}), wide = vit_of("", {3, 16, 32});
  auto file = file_of(*square);
  at::Tensor& positions = file.at("encoder.pos_embedding");
  positions.fill_(2);
  positions.select(1, 0).fill_(7);
  std::map<std::string, at::Tensor> prefixed;
  for (const auto& [name, tensor] : file) prefixed["module." + name] = tensor;
  load_weights(*wide, source_of(prefixed));
  wide->each_parameter([](const std::string& name, nn::Parameter& parameter) {
    if (name != "pos_embed") return;
    EXPECT_EQ(parameter.value.sizes(), (at::IntArrayRef{1, 9, 8}));
    EXPECT_TRUE(parameter.value.select(1, 0).eq(7).all().item<bool>()) << "the token for the class keeps its own";
    EXPECT_TRUE(parameter.value.narrow(1, 1, 8).sub(2).abs().lt(1e-5).all().item<bool>());
  });
  file["encoder.pos_embedding"] = at::ones({1, 8, 8});  // seven patches are no square
  EXPECT_THROW(load_weights(*wide, source_of(file)), Error);
}

TEST(Vit, IsWrittenUnderTheNamesOfTheFileThatItBeginsWith) {
  const auto timm = vit_of("layout: timm"), torchvision = vit_of("");
  const auto names_after = [](const std::string& options, const auto& file, OtherClasses other_classes) {
    const auto model = vit_of(options);
    load_weights(*model, source_of(file), other_classes);
    return std::string(file_of(*model).contains("cls_token") ? "timm" : "torchvision");
  };
  EXPECT_EQ(names_after("", file_of(*timm), OtherClasses::left_out), "timm");
  EXPECT_EQ(names_after("", file_of(*torchvision), OtherClasses::left_out), "torchvision");
  EXPECT_EQ(names_after("layout: torchvision", file_of(*timm), OtherClasses::left_out), "torchvision");
  EXPECT_EQ(names_after("layout: timm", file_of(*torchvision), OtherClasses::left_out), "timm");
}

TEST(Vit, SaysThatThePatchesOfAFileHaveAnotherSize) {
  const auto model = vit_of("");
  auto file = file_of(*vit_of("layout: timm"));
  file["patch_embed.proj.weight"] = at::ones({8, 3, 4, 4});
  try {
    load_weights(*model, source_of(file), OtherClasses::left_out);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the file has patches of 4 x 4 pixels, the job says 8"));
  }
}

TEST(Convnext, IsWrittenForTimmAndReadAgain) {
  const auto make = [](int64_t seed) {
    auto model = build(load_job("model: {type: convnext, config: {blocks: [1, 2], channels: [8, 16]}}\n"),
                       {.input_shape = {3, 32, 32}, .num_classes = 5});
    nn::initialize(*model, static_cast<uint64_t>(seed));
    return model;
  };
  const auto theirs = make(1), ours = make(2);
  const auto family = family_of(*theirs);
  set_layout(*theirs, "timm");
  std::map<std::string, at::Tensor> file;
  theirs->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    file[family->file_name_of(*theirs, name)] = stored(*theirs, name, parameter.value.detach());
  });
  for (const char* name :
       {"stem.0.weight", "stem.1.bias", "stages.1.downsample.1.weight", "stages.1.blocks.1.conv_dw.bias",
        "stages.1.blocks.1.mlp.fc2.weight", "head.norm.weight", "head.fc.weight"})
    EXPECT_TRUE(file.contains(name)) << name;
  EXPECT_EQ(file.at("stages.0.blocks.0.gamma").dim(), 1);
  load_weights(*ours, source_of(file), OtherClasses::left_out);
  std::map<std::string, at::Tensor> read;
  ours->each_parameter([&](const std::string& name, nn::Parameter& parameter) { read[name] = parameter.value; });
  theirs->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    EXPECT_TRUE(read.at(name).equal(parameter.value)) << name;
  });
  EXPECT_EQ(family->file_name_of(*ours, "classifier.2.weight"), "head.fc.weight") << "as the file that it begins with";
}

/// Weights whose positions are the numbers of their columns, taken to images of another size; the column of each
/// position then, or what was refused.
std::string columns_after(const std::vector<int64_t>& from, const std::vector<int64_t>& to, bool is_known,
                          const std::string& layout = "") {
  const auto theirs = vit_of(layout, from), ours = vit_of(layout, to);
  auto file = file_of(*theirs);
  at::Tensor& positions = file.at(layout.empty() ? "encoder.pos_embedding" : "pos_embed");
  const int64_t columns = from[2] / 8;
  for (int64_t i = 0; i < positions.size(1) - 1; ++i)
    positions.select(1, i + 1).fill_(static_cast<double>(i % columns));
  TensorSource source = source_of(file);
  if (is_known) source.images = ImageSize{from[1], from[2]};
  try {
    load_weights(*ours, source);
  } catch (const Error& error) {
    return error.what();
  }
  std::string seen;
  ours->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (name != "pos_embed") return;
    for (int64_t i = 1; i < parameter.value.size(1); ++i)
      seen += std::to_string(std::lround(parameter.value[0][i][0].item<double>()));
  });
  return seen;
}

TEST(Vit, TakesPositionsFromTheGridOfTheFile) {
  const std::string rows = "0123456701234567";
  EXPECT_EQ(columns_after({3, 16, 64}, {3, 24, 64}, true), rows + "01234567");
  EXPECT_EQ(columns_after({3, 16, 64}, {3, 24, 64}, true, "layout: timm"), rows + "01234567");
  EXPECT_EQ(columns_after({3, 16, 64}, {3, 16, 64}, true), rows);
  EXPECT_EQ(columns_after({3, 16, 64}, {3, 64, 16}, true),
            "07070707"
            "07070707")
      << "as many patches, another grid";
  EXPECT_EQ(columns_after({3, 32, 32}, {3, 16, 64}, true).size(), 16U);
  EXPECT_NE(columns_after({3, 32, 32}, {3, 16, 64}, true), columns_after({3, 16, 64}, {3, 16, 64}, true));
  EXPECT_EQ(columns_after({3, 24, 64}, {3, 24, 64}, false), rows + "01234567") << "24 patches are no square";
  EXPECT_EQ(columns_after({3, 32, 32}, {3, 32, 32}, false), "0123012301230123");
  EXPECT_THAT(columns_after({3, 16, 64}, {3, 16, 64}, false), HasSubstr("image_size")) << "or a square of 4 x 4";
  EXPECT_THAT(columns_after({3, 24, 64}, {3, 16, 64}, false), HasSubstr("which height and width these have"));
}

TEST(Vit, ReadsSizesOfImagesFromConfigJson) {
  using nlohmann::json;
  EXPECT_EQ(image_size_in({{"image_size", 224}}), (ImageSize{224, 224}));
  EXPECT_EQ(image_size_in({{"image_size", {16, 64}}}), (ImageSize{16, 64}));
  EXPECT_EQ(image_size_in({{"pretrained_cfg", {{"input_size", {3, 24, 48}}}}}), (ImageSize{24, 48}));
  EXPECT_EQ(image_size_in({{"pretrained_cfg", {{"input_size", {3, 24, 48}}}}, {"model_args", {{"img_size", 32}}}}),
            (ImageSize{32, 32}));
  EXPECT_EQ(image_size_in({{"image_size", "large"}}), std::nullopt);
  EXPECT_EQ(image_size_in(json::object()), std::nullopt);
}

TEST(Timm, SaysHowImagesAreReadForItsWeights) {
  using nlohmann::json;
  const json told{{"input_size", {3, 24, 48}}, {"mean", {0.5, 0.25, 0.125}}, {"std", {1, 1, 1}},
                  {"crop_pct", 0.875},         {"crop_mode", "border"},      {"interpolation", "bicubic"}};
  const auto read = [](const json& cfg) {
    return timm_images_in({{"architecture", "vit_tiny"}, {"pretrained_cfg", cfg}});
  };
  const PublishedImages images = read(told);
  EXPECT_EQ(images.size, (ImageSize{24, 48}));
  ASSERT_TRUE(images.normalization);
  EXPECT_EQ(images.normalization->mean, (std::vector<double>{0.5, 0.25, 0.125}));
  EXPECT_EQ(images.normalization->std, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(images.crop_pct, 0.875);
  EXPECT_EQ(images.crop_mode, "border");
  EXPECT_EQ(images.interpolation, "bicubic");
  const auto is_empty = [](const PublishedImages& one) {
    return !one.size && !one.normalization && !one.crop_pct && one.crop_mode == "center" && !one.interpolation;
  };
  EXPECT_TRUE(is_empty(read({{"input_size", "large"},
                             {"mean", {0.5, "red"}},
                             {"std", {1, 1}},
                             {"crop_pct", 1.5},
                             {"crop_mode", 1},
                             {"interpolation", nullptr}})));
  EXPECT_TRUE(is_empty(read({{"mean", {0.5}}}))) << "a mean alone";
  EXPECT_TRUE(is_empty(read(json::array())));
  EXPECT_TRUE(is_empty(timm_images_in({{"model_type", "vit"}, {"architecture", "vit"}, {"pretrained_cfg", told}})));
  EXPECT_TRUE(is_empty(timm_images_in(json())));
}

TEST(Processor, SaysHowTransformersReadsImages) {
  using nlohmann::json;
  const json told{{"do_normalize", true},
                  {"image_mean", {0.5, 0.25, 0.125}},
                  {"image_std", {0.5, 0.5, 0.5}},
                  {"resample", 3},
                  {"size", {{"shortest_edge", 256}}},
                  {"do_center_crop", true},
                  {"crop_size", {{"height", 224}, {"width", 224}}}};
  const PublishedImages images = processor_images_in(told);
  ASSERT_TRUE(images.normalization);
  EXPECT_EQ(images.normalization->mean, (std::vector<double>{0.5, 0.25, 0.125}));
  EXPECT_EQ(images.normalization->std, (std::vector<double>{0.5, 0.5, 0.5}));
  EXPECT_EQ(images.interpolation, "bicubic");
  EXPECT_EQ(images.crop_pct, 0.875);
  EXPECT_EQ(images.crop_mode, "center");

  json other = told;
  other.update({{"do_normalize", false},
                {"rescale_factor", 1 / 127.5},
                {"resample", 2},
                {"do_center_crop", false},
                {"size", {{"height", 224}, {"width", 224}}}});
  const PublishedImages squashed = processor_images_in(other);
  EXPECT_NEAR(squashed.normalization->std[2], 0.5, 1e-12) << "values from 0 to 2";
  EXPECT_EQ(squashed.normalization->mean[0], 0);
  EXPECT_EQ(squashed.interpolation, "bilinear");
  EXPECT_EQ(squashed.crop_pct, std::nullopt);
  EXPECT_EQ(squashed.crop_mode, "squash");

  const PublishedImages unread =
      processor_images_in({{"image_mean", "red"}, {"size", json::array()}, {"resample", "x"}});
  EXPECT_FALSE(unread.normalization || unread.crop_pct || unread.interpolation);
  EXPECT_FALSE(processor_images_in(json()).normalization);
}

TEST(Vit, DropsPathsOfWholeSamplesInTraining) {
  const auto model = vit_of("drop_path: 0.5");
  const at::NoGradGuard no_grad;
  const at::Tensor images = random_leaf({1, 3, 16, 16}, 1, at::kFloat).expand({64, -1, -1, -1});
  const auto kinds = [&] {
    std::map<float, int> found;  // the same sample gives one result for each choice of paths
    const at::Tensor logits = model->forward(images).select(1, 0).contiguous();
    for (int64_t i = 0; i < logits.size(0); ++i) ++found[logits[i].item<float>()];
    return found.size();
  };
  EXPECT_EQ(kinds(), 4U) << "with and without each half of the last block, and none of the first is dropped";
  model->train(false);
  EXPECT_EQ(kinds(), 1U);
}

}  // namespace
}  // namespace gputrain::models
