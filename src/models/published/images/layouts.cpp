// How files of torchvision and timm name and shape the weights of ViTs and ConvNeXts.
#include <algorithm>

#include "../../images/convnext.hpp"
#include "../../images/vit.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/models/image_layouts.hpp"

namespace gputrain::models {
namespace {

bool has_name(const TensorSource& source, std::string_view end) {
  return std::ranges::any_of(source.names, [&](const std::string& name) { return name.ends_with(end); });
}

void check_patches(const Vit& model, const TensorSource& source, const std::string& name) {
  const at::Tensor filters = source.tensor(name);
  const int64_t ours = model.patch_size();
  if (filters.dim() != 4 || filters.size(2) != filters.size(3) || filters.size(2) == ours) return;
  const std::string theirs = std::to_string(filters.size(2));
  throw Error(ExitCode::data, {.what = "the file has patches of " + theirs + " x " + theirs + " pixels, the job says " +
                                       std::to_string(ours),
                               .where = source.where,
                               .hint = "model.config.patch_size: " + theirs});
}

}  // namespace

std::vector<std::string> layouts_of(const Model& model) {
  const auto* const vit = dynamic_cast<const Vit*>(&model);
  if (vit != nullptr && !vit->fits_torchvision()) return {"timm"};
  if (vit != nullptr || is_convnext(model)) return {"timm", "torchvision"};
  return {};
}

void set_layout(Model& model, const std::string& layout) {
  const bool is_timm = layout == "timm";
  if (auto* const vit = dynamic_cast<Vit*>(&model))
    vit->set_layout(is_timm ? VitLayout::timm : VitLayout::torchvision);
  else if (is_convnext(model))
    write_for_timm(model, is_timm);
}

void begin_with(Model& model, const TensorSource& source) {
  if (is_convnext(model)) write_for_timm(model, has_name(source, "stem.0.weight"));
  auto* const vit = dynamic_cast<Vit*>(&model);
  if (vit == nullptr) return;
  if (!vit->says_layout() && has_name(source, "cls_token")) vit->set_layout(VitLayout::timm);
  for (const std::string& name : source.names)
    if (name.ends_with("patch_embed.proj.weight") || name.ends_with("conv_proj.weight"))
      check_patches(*vit, source, name);
}

at::Tensor stored(const Model& model, const std::string& parameter, const at::Tensor& ours) {
  const bool is_factor = is_convnext(model) && parameter.ends_with(".layer_scale");
  return is_factor && is_written_for_timm(model) ? ours.flatten() : ours;
}

}  // namespace gputrain::models
