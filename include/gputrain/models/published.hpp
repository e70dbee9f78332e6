// Families of published weights, Hugging Face's for instance: what their config.json says about a model of ours, and
// how their tensors are named. One family per file in src/models/published.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/config/catalog.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::models {

/// A config.json as our options.
struct PublishedModel {
  using Options = std::vector<std::pair<std::string, std::string>>;  // option and value as YAML: "n_layer", "12"
  std::string type;                                                  // entry of the model catalog: "gpt"
  Options options;
  Options defaults = {};  // options that the job may set otherwise: the weights fit all the same
  Options vectors = {};   // with these it gives vectors of texts, without its head; empty: it cannot
};

/// Height and width of images.
struct ImageSize {
  int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};
/// Reads the size of the images that a model was trained on from a config.json of timm or transformers. Empty: it does
/// not say.
std::optional<ImageSize> image_size_in(const nlohmann::json& config);

/// A tensor of a file whose weights were trained on images of this size; empty: not known.
struct FileTensor {
  std::string name;  // may have a prefix that all names have
  at::Tensor values;
  std::optional<ImageSize> images = {};
};

class PublishedFamily {
 public:
  virtual ~PublishedFamily();

  /// Whether a config.json, a JSON object, describes a model of this family.
  virtual bool means(const nlohmann::json& config) const = 0;
  /// The model that it describes. `where` is its path. Throws Error(data) for a config.json that is broken, or that
  /// asks for something we do not compute.
  virtual PublishedModel model_of(const nlohmann::json& config, const std::string& where) const = 0;

  /// Whether weights of this model are read and written under this family's names.
  virtual bool names(const Model& model) const = 0;
  /// The config.json with which others read the weights of a model that the family names; null: they cannot.
  virtual nlohmann::json config_of(const Model& model) const = 0;

  /// The parameter or buffer of the model that a tensor of a file fills; empty: the tensor is skipped. Asked for any
  /// name. Tensors that the model ties fill the same one, and must then be equal.
  virtual std::string parameter_of(const Model& model, const std::string& file_name) const;
  /// The name in a file of a parameter or buffer of the model. parameter_of() turns it back.
  virtual std::string file_name_of(const Model& model, const std::string& parameter) const;
  /// What a tensor of a file says about a model of another size, as positions of another image size do; else the
  /// tensor. Throws Error(data) where the file leaves open what it says.
  virtual at::Tensor fitted(const Model& model, const FileTensor& theirs) const;
};

using FamilyCatalog = config::Catalog<PublishedFamily>;
FamilyCatalog& families();

/// The family that describes a config.json, or that names a model; null: there is none. Of several the first by name.
std::unique_ptr<const PublishedFamily> family_meant_by(const nlohmann::json& config);
std::unique_ptr<const PublishedFamily> family_of(const Model& model);

/// Reads the config.json of any family. Throws Error(data) as model_of() does, and where no family describes it.
PublishedModel published_model(const nlohmann::json& config, const std::string& where);

/// Whether a config.json is of a folder of timm, which says nothing of a model's sizes: the job gives them.
bool is_timm_config(const nlohmann::json& config);

/// PublishedFamily::config_of of the model's family; null where it has none.
nlohmann::json published_config(const Model& model);

}  // namespace gputrain::models
