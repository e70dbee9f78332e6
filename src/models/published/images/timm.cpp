// Folders of timm, as on the Hub: which of our models an architecture is, and the sizes that model_args give; the same
// the other way round.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "../../images/convnext.hpp"
#include "../../images/vit.hpp"
#include "../config_json.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/models/image_layouts.hpp"
#include "gputrain/nn/layers.hpp"

namespace gputrain::models {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kTypes{
    {{"resnet18", "resnet18"},
     {"resnet34", "resnet34"},
     {"resnet50", "resnet50"},
     {"resnet101", "resnet101"},
     {"resnet152", "resnet152"},
     {"vit_tiny_patch16_224", "vit_ti_16"},
     {"vit_small_patch16_224", "vit_s_16"},
     {"vit_base_patch16_224", "vit_b_16"},
     {"deit_tiny_patch16_224", "vit_ti_16"},
     {"deit_small_patch16_224", "vit_s_16"},
     {"deit_base_patch16_224", "vit_b_16"},
     {"convnext_tiny", "convnext_tiny"},
     {"convnext_small", "convnext_small"},
     {"convnext_base", "convnext_base"},
     {"convnext_large", "convnext_large"},
     {"tf_efficientnetv2_s", "efficientnet_v2_s"},
     {"tf_efficientnetv2_m", "efficientnet_v2_m"},
     {"tf_efficientnetv2_l", "efficientnet_v2_l"},
     {"mobilenetv3_large_100", "mobilenet_v3_large"},
     {"mobilenetv3_small_100", "mobilenet_v3_small"}}};

void add_vit(SpecOptions& options, const ConfigReader& args) {
  for (const auto& [theirs, ours] :
       {std::pair{"patch_size", "patch_size"}, {"depth", "n_layer"}, {"num_heads", "n_head"}, {"embed_dim", "n_embd"}})
    if (const auto size = args.size(theirs)) options.add(ours, *size);
  constexpr double kUsualRatio = 4;
  if (const double ratio = args.number("mlp_ratio", kUsualRatio); ratio != kUsualRatio)
    options.add("n_inner", static_cast<int64_t>(ratio * static_cast<double>(args.required_size("embed_dim"))));
  if (args.has("qkv_bias")) options.add("qkv_bias", args.flag("qkv_bias", true));
  const std::string pooling = args.text("global_pool", "token");
  if (pooling != "token" && pooling != "avg")
    args.refuse("'global_pool' is '" + pooling + "', expected token or avg", "use weights trained with one of these");
  if (pooling == "avg") options.add("pooling", "mean");
}

/// Adds a list of sizes, one for each stage.
void add_stages(SpecOptions& options, const char* ours, const nlohmann::json* sizes) {
  if (sizes != nullptr) options.list.emplace_back(ours, sizes->dump());
}

}  // namespace

std::string type_of_timm(const std::string& architecture) {
  const std::string_view name = std::string_view(architecture).substr(0, architecture.find('.'));
  for (const auto& [timm, ours] : kTypes)
    if (timm == name) return std::string(ours);
  return {};
}

PublishedModel timm_model(const nlohmann::json& config, const std::string& where) {
  const nlohmann::json args = config.value("model_args", nlohmann::json::object());
  const auto architecture = config.at("architecture").get<std::string>();
  PublishedModel model{.type = type_of_timm(architecture), .options = {}};
  const bool has_sizes = args.is_object() && args.contains("embed_dim") && args.contains("depth") &&
                         args.contains("num_heads") && args.contains("patch_size");
  if (model.type.empty() && architecture.starts_with("vit_") && has_sizes) model.type = "vit";
  if (!args.is_object()) return model;
  const ConfigReader reader(args, where);
  SpecOptions options;
  if (model.type.starts_with("vit")) {
    add_vit(options, reader);
  } else if (model.type.starts_with("convnext")) {
    add_stages(options, "blocks", reader.find("depths"));
    add_stages(options, "channels", reader.find("dims"));
  }
  model.options = std::move(options.list);
  return model;
}

nlohmann::ordered_json timm_config(Model& model, const std::string& type, const std::vector<int64_t>& image) {
  using Json = nlohmann::ordered_json;
  constexpr double kNormEps = 1e-6;
  constexpr size_t kStages = 4;
  Json args{{"in_chans", image.at(2)}};
  std::string architecture = "convnext_tiny";  // whose sizes model_args replace
  if (const auto* const vit = dynamic_cast<const Vit*>(&model)) {
    const VitSpec& spec = vit->spec();
    if (spec.norm_eps != kNormEps) return nullptr;
    architecture = "vit_base_patch16_224";
    // timm rounds the product down.
    const double ratio = (static_cast<double>(spec.inner()) + 0.5) / static_cast<double>(spec.n_embd);
    args.update(Json{{"img_size", {image.at(0), image.at(1)}},
                     {"patch_size", spec.patch_size},
                     {"embed_dim", spec.n_embd},
                     {"depth", spec.n_layer},
                     {"num_heads", spec.n_head},
                     {"mlp_ratio", spec.inner() == 4 * spec.n_embd ? 4 : ratio},
                     {"qkv_bias", spec.qkv_bias},
                     {"global_pool", spec.pooling == "mean" ? "avg" : "token"}});
  } else {
    const ConvnextStages& stages = stages_of(model);
    if (stages.blocks.size() != kStages) return nullptr;
    args.update(Json{{"depths", stages.blocks}, {"dims", stages.channels}});
  }
  const auto known = std::ranges::find(kTypes, std::string_view(type), &decltype(kTypes)::value_type::second);
  if (known != kTypes.end()) architecture = known->first;
  const auto* const head = dynamic_cast<const nn::Linear*>(model.units().back().modules.back());
  GPUTRAIN_ASSERT(head != nullptr, "the last layer gives the classes");
  return {{"architecture", architecture},
          {"num_classes", head->options().out},
          {"model_args", args},
          {"pretrained_cfg", {{"input_size", {image.at(2), image.at(0), image.at(1)}}, {"crop_mode", "center"}}}};
}

}  // namespace gputrain::models
