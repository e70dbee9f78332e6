// Adapters: what a job adds to any model before training, few parameters beside frozen ones. One kind per file in
// src/models/adapters. They are read and written as PEFT (huggingface/peft) does.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/config/catalog.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/pretrained.hpp"

namespace gputrain::models {

constexpr const char *kAdapterConfig = "adapter_config.json", *kAdapterWeights = "adapter_model.safetensors";

class Adapter {
 public:
  virtual ~Adapter();

  /// Freezes parameters of the model and adds branches to its dense layers. Called once, before the arena is built.
  /// Throws Error(usage) if there is nothing to adapt.
  virtual void adapt(Model& model) const = 0;

  /// The folder of an adapter to start from; empty: it starts as new.
  virtual std::string pretrained() const = 0;
  /// Whether the run also writes the model with the adapter merged into it.
  virtual bool is_written_merged() const = 0;

  /// The adapter_config.json with which PEFT reads the adapter of a model that adapt() has changed. `base`: path of the
  /// model's own weights.
  virtual nlohmann::json config_of(Model& model, const std::string& base) const = 0;
  /// Throws Error(data) if an adapter_config.json means something that we do not compute, or another adapter than this.
  virtual void check_config(const nlohmann::json& config, const std::string& where) const = 0;
};

using AdapterCatalog = config::Catalog<Adapter>;
AdapterCatalog& adapters();

/// What an adapted model trains, by its names in PEFT's files.
std::vector<std::pair<std::string, at::Tensor>> adapter_weights(Model& model);
/// The same of `weights`, which have the model's own names.
std::vector<std::pair<std::string, at::Tensor>> adapter_weights(
    Model& model, const std::vector<std::pair<std::string, at::Tensor>>& weights);

/// Fills those that have memory, and refuses a source as load_weights() does.
void load_adapter(Model& model, const TensorSource& source);

/// Adds each branch to the weight of its layer, if that has memory, computed in the master type, and makes the branch
/// zero.
void merge_adapter(Model& model);

/// The parameters that were added to the model's own, by their full names.
std::vector<std::string> branch_parameters(Model& model);

}  // namespace gputrain::models
