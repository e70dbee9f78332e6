// Libraries under whose names the weights of a model of images are written, and folders of timm.
#pragma once

#include <string>
#include <vector>

#include "gputrain/models/pretrained.hpp"

namespace gputrain::models {

/// Returns the libraries whose names and shapes weights of this model can have in a file; empty: there is no choice.
std::vector<std::string> layouts_of(const Model& model);
/// Writes the weights for one of them from now on.
void set_layout(Model& model, const std::string& layout);
/// Prepares a model that begins with the weights of this source: it is written as the source is, unless the job says
/// otherwise. Throws Error(data) for a ViT whose patches have another size.
void begin_with(Model& model, const TensorSource& source);
/// Returns a parameter or buffer in the shape that it has in a file. PublishedFamily::fitted() turns it back.
at::Tensor stored(const Model& model, const std::string& parameter, const at::Tensor& ours);

/// Returns the entry of the model catalog that is timm's architecture ("vit_tiny_patch16_224"); empty: there is none.
std::string type_of_timm(const std::string& architecture);
/// Reads the config.json of a timm folder. The type is empty if there is none; the options are the sizes that its
/// model_args give.
PublishedModel timm_model(const nlohmann::json& config, const std::string& where);
/// Returns the config.json by which timm builds this ViT or ConvNeXt, an entry `type` of the catalog, for images
/// [height, width, channels]; null: timm has none of its form. `pretrained_cfg` lacks how images are fitted.
nlohmann::ordered_json timm_config(Model& model, const std::string& type, const std::vector<int64_t>& image);

}  // namespace gputrain::models
