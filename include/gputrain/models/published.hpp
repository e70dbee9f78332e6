// Families of published weights, for instance Hugging Face's: translate their config.json to our options and their
// tensor names to ours. One family per file in src/models/published.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/config/catalog.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::models {

/// Contents of a config.json as our options.
struct PublishedModel {
  using Options = std::vector<std::pair<std::string, std::string>>;  // option and value as YAML: "n_layer", "12"
  std::string type;                                                  // entry of the model catalog: "gpt"
  Options options;
  Options defaults = {};   // options that the job may set otherwise: the weights still fit
  Options vectors = {};    // options for vectors of texts instead of its head; empty: it gives none
  Options quantized = {};  // options of model.quantize by which its weights are packed; empty: they are not
};

/// Height and width of images.
struct ImageSize {
  int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};
/// Reads the size of the images of training from a config.json of timm or transformers. Empty: it does not say.
std::optional<ImageSize> image_size_in(const nlohmann::json& config);

/// How others read images for weights, as a file beside them says. What it leaves open is empty.
struct PublishedImages {
  std::optional<ImageSize> size;  // size of the first training
  std::optional<data::Normalization> normalization;
  std::optional<double> crop_pct;  // size of the input as a part of the side that it is cut from
  std::string crop_mode = "center";
  std::optional<std::string> interpolation;
  std::string file = "config.json";
};
/// Reads them in the pretrained_cfg of timm's config.json. All are empty for a config.json of others.
PublishedImages timm_images_in(const nlohmann::json& config);
/// Reads them in a preprocessor_config.json of transformers.
PublishedImages processor_images_in(const nlohmann::json& processor);

/// Tensor of a file. `images`: size of the images that the weights were trained on; empty: not known.
struct FileTensor {
  std::string name;  // may have a prefix that all names have
  at::Tensor values;
  std::optional<ImageSize> images = {};
};

class PublishedFamily {
 public:
  virtual ~PublishedFamily();

  /// Returns whether a config.json, a JSON object, describes a model of this family.
  virtual bool means(const nlohmann::json& config) const = 0;
  /// Returns the model that it describes. `where` is its path. Throws Error(data) for a config.json that is broken, or
  /// that asks for something we do not compute.
  virtual PublishedModel model_of(const nlohmann::json& config, const std::string& where) const = 0;

  /// Returns whether weights of this model are read and written under this family's names.
  virtual bool names(const Model& model) const = 0;
  /// Returns the config.json that other programs need to read the weights of a model of the family; null: they cannot.
  virtual nlohmann::json config_of(const Model& model) const = 0;

  /// Returns the parameter or buffer of the model that a tensor of a file fills; empty: the tensor is skipped. Must
  /// accept any name. Tensors that the model ties fill the same one, and must then be equal.
  virtual std::string parameter_of(const Model& model, const std::string& file_name) const;
  /// Returns the name in a file of a parameter or buffer of the model. parameter_of() turns it back.
  virtual std::string file_name_of(const Model& model, const std::string& parameter) const;
  /// Adapts a tensor of a file to a model of another size, such as positions of another image size; returns any other
  /// tensor unchanged. Throws Error(data) if the file leaves open how.
  virtual at::Tensor fitted(const Model& model, const FileTensor& theirs) const;
};

using FamilyCatalog = config::Catalog<PublishedFamily>;
FamilyCatalog& families();

/// Finds the family that describes a config.json, or that names a model; null: there is none. The first by name wins.
std::unique_ptr<const PublishedFamily> family_meant_by(const nlohmann::json& config);
std::unique_ptr<const PublishedFamily> family_of(const Model& model);

/// Reads the config.json of any family. Throws Error(data) as model_of() does, and where no family describes it.
PublishedModel published_model(const nlohmann::json& config, const std::string& where);

/// Returns whether a config.json is of a timm folder, which does not give a model's sizes: the job gives them.
bool is_timm_config(const nlohmann::json& config);

/// Returns PublishedFamily::config_of of the model's family; null if it has none.
nlohmann::json published_config(const Model& model);

}  // namespace gputrain::models
