// Vision Transformers of torchvision and timm, as safetensors files without a config.json.
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/upsample_bicubic2d.h>

#include "../../images/vit.hpp"
#include "../config_json.hpp"

namespace gputrain::models {
namespace {

using Names = std::pair<std::string_view, std::string_view>;  // torchvision's and timm's

constexpr std::array<Names, 5> kVitNames{{{"class_token", "cls_token"},
                                          {"encoder.pos_embedding", "pos_embed"},
                                          {"conv_proj.", "patch_embed.proj."},
                                          {"encoder.ln.", "norm."},
                                          {"heads.head.", "head."}}};

constexpr Names kVitBlocks{"encoder.layers.encoder_layer_", "blocks."};

constexpr std::array<Names, 6> kVitBlockNames{{{"ln_1.", "norm1."},
                                               {"ln_2.", "norm2."},
                                               {"self_attention.in_proj_", "attn.qkv."},
                                               {"self_attention.out_proj.", "attn.proj."},
                                               {"mlp.0.", "mlp.fc1."},
                                               {"mlp.3.", "mlp.fc2."}}};

// Names in torchvision before version 0.14.
constexpr std::array<Names, 2> kOldVitBlockNames{{{"mlp.linear_1.", "mlp.fc1."}, {"mlp.linear_2.", "mlp.fc2."}}};

template <class Table>
std::string translated(const std::string& name, const Table& table, std::string_view Names::*from,
                       std::string_view Names::*to) {
  for (const Names& names : table) {
    if (name.starts_with(names.*from)) return std::string(names.*to) + name.substr((names.*from).size());
  }
  return name;
}

/// Translates torchvision's names to timm's, or back. Other names stay.
std::string translated(const std::string& name, std::string_view Names::*from, std::string_view Names::*to) {
  const std::string_view blocks = kVitBlocks.*from;
  if (!name.starts_with(blocks)) return translated(name, kVitNames, from, to);
  const size_t dot = name.find('.', blocks.size());
  if (dot == std::string::npos) return name;
  const std::string number = name.substr(blocks.size(), dot - blocks.size()), rest = name.substr(dot + 1);
  std::string in_block = translated(rest, kVitBlockNames, from, to);
  if (in_block == rest && from == &Names::first) in_block = translated(rest, kOldVitBlockNames, from, to);
  return std::string(kVitBlocks.*to) + number + "." + in_block;
}

/// Interpolates positions [1, 1 + patches, channels] for another grid of patches, as the library of the file does.
at::Tensor interpolated(const at::Tensor& positions, const Vit::Grid& from, const Vit::Grid& to, bool is_timm) {
  const int64_t channels = positions.size(2);
  const at::Tensor wide = positions.scalar_type() == at::kDouble ? positions : positions.to(at::kFloat);
  const at::Tensor image =
      wide.narrow(1, 1, from.rows * from.columns).reshape({1, from.rows, from.columns, channels}).permute({0, 3, 1, 2});
  const std::array<int64_t, 2> size{to.rows, to.columns};
  const at::Tensor resized = is_timm ? at::_upsample_bicubic2d_aa(image.contiguous(), size, /*align_corners=*/false)
                                     : at::upsample_bicubic2d(image.contiguous(), size, /*align_corners=*/true);
  return at::cat({wide.narrow(1, 0, 1), resized.permute({0, 2, 3, 1}).reshape({1, -1, channels})}, 1);
}

[[noreturn]] void refuse_positions(const FileTensor& theirs, const std::string& why) {
  throw Error(ExitCode::data, {.what = "'" + theirs.name + "' has positions of " +
                                       std::to_string(theirs.values.size(1) - 1) + " patches, " + why,
                               .hint = "put a config.json beside the file that says it: {\"image_size\": [HEIGHT, "
                                       "WIDTH]}, in pixels of the images that the weights were trained on"});
}

/// Returns the grid of patches of a file's positions. If the file does not tell it, the grid is square, or else ours.
Vit::Grid grid_of(const FileTensor& theirs, const Vit& model) {
  const int64_t patches = theirs.values.size(1) - 1;
  const Vit::Grid& ours = model.grid();
  if (const auto& images = theirs.images) {
    const Vit::Grid grid{images->height / model.patch_size(), images->width / model.patch_size()};
    if (grid.rows * grid.columns == patches) return grid;
    refuse_positions(theirs, "but is said to be of images of " + std::to_string(images->height) + " x " +
                                 std::to_string(images->width) + " pixels");
  }
  const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(patches))));
  const bool may_be_square = side * side == patches, may_be_ours = ours.rows * ours.columns == patches;
  if (may_be_square && (!may_be_ours || ours.rows == ours.columns)) return {side, side};
  if (may_be_ours && !may_be_square) return ours;
  refuse_positions(theirs, "and which height and width these have is not known");
}

class VitFamily final : public PublishedFamily {
 public:
  explicit VitFamily(const config::NoOptions&) {}

  bool means(const nlohmann::json& config) const override { return is_model_type(config, "vit"); }

  PublishedModel model_of(const nlohmann::json& config, const std::string& where) const override {
    ConfigReader(config, where)
        .refuse("transformers' names of a ViT are not read",
                "take the weights of torchvision or timm, as a safetensors file without a config.json");
  }

  bool names(const Model& model) const override { return dynamic_cast<const Vit*>(&model) != nullptr; }
  nlohmann::json config_of(const Model&) const override { return {}; }

  std::string parameter_of(const Model&, const std::string& file_name) const override {
    return translated(file_name, &Names::first, &Names::second);
  }

  std::string file_name_of(const Model& model, const std::string& parameter) const override {
    const bool is_timm = dynamic_cast<const Vit&>(model).layout() == VitLayout::timm;
    return is_timm ? parameter : translated(parameter, &Names::second, &Names::first);
  }

  at::Tensor fitted(const Model& model, const FileTensor& theirs) const override {
    const bool is_timm = theirs.name.ends_with("pos_embed"), is_torchvision = theirs.name.ends_with("pos_embedding");
    const at::Tensor& values = theirs.values;
    if ((!is_timm && !is_torchvision) || values.dim() != 3 || values.size(0) != 1 || values.size(1) < 2 ||
        !values.is_floating_point())
      return values;
    const auto& vit = dynamic_cast<const Vit&>(model);
    const Vit::Grid grid = grid_of(theirs, vit);
    return grid == vit.grid() ? values : interpolated(values, grid, vit.grid(), is_timm);
  }
};

const config::Registered<VitFamily, config::NoOptions> registered_vit_family{families(), "vit",
                                                                             "ViT of torchvision and timm"};

}  // namespace
}  // namespace gputrain::models
