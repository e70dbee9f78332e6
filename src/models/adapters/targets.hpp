// Modules of a model that an adapter's names mean.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gputrain/models/model.hpp"
#include "gputrain/models/published.hpp"
#include "gputrain/nn/layers.hpp"

namespace gputrain::models {

constexpr const char* kAllLinear = "all-linear";

/// Names in published files of a model's modules and parameters; our names if no family names them.
class Published {
 public:
  explicit Published(const Model& model) : model_(model), family_(family_of(model)) {}
  std::string parameter(const std::string& name) const { return family_ ? family_->file_name_of(model_, name) : name; }
  std::string module(const std::string& name) const;

 private:
  const Model& model_;
  std::unique_ptr<const PublishedFamily> family_;
};

struct NamedLayer {
  std::string name;
  nn::Linear* layer;

  bool operator==(const NamedLayer&) const = default;
};

/// Returns the dense layers that the targets mean, in the model's order: `all-linear` means all but experts and the
/// layer that gives the classes; a name means the modules whose name is or ends in it, as in PEFT; anything else is a
/// regular expression of whole names. `key` names the setting in messages. Throws Error(usage) for a target that means
/// no dense layer, or also an embedding.
std::vector<NamedLayer> target_layers(Model& model, const std::vector<std::string>& targets, const std::string& key);

/// Returns whether a pattern means a layer, as in PEFT's rank_pattern: a regular expression of the whole name, or of
/// its end after a dot. `key` names the setting in messages. Throws Error(usage) for what is no regular expression.
bool is_end_of_name(const std::string& pattern, const std::string& name, const std::string& key);

/// Returns the modules that the names mean. Throws Error(usage) for a name that means none, and for an embedding that
/// is the head too: PEFT would train only one of the two.
std::vector<nn::Module*> modules_to_save(Model& model, const std::vector<std::string>& names, const std::string& key,
                                         bool may_be_missing);

}  // namespace gputrain::models
