// Adapters: a few trainable parameters beside the frozen ones of a model. One kind per file in src/models/adapters.
// They are read and written in the format of PEFT (huggingface/peft).
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

  /// Returns the folder of an adapter to start from; empty: it starts as new.
  virtual std::string pretrained() const = 0;
  /// Describes it for the start page: "lora rank 16, alpha 32, dora".
  virtual std::string describe() const = 0;
  /// Returns whether the run also writes the model with the adapter merged into it.
  virtual bool is_written_merged() const = 0;

  /// Returns the adapter_config.json with which PEFT reads the adapter of a model that adapt() has changed. `base`:
  /// path of the model's own weights.
  virtual nlohmann::json config_of(Model& model, const std::string& base) const = 0;
  /// Throws Error(data) if an adapter_config.json asks for something that we do not compute, or for another adapter
  /// than that of a model that adapt() has changed.
  virtual void check_config(Model& model, const nlohmann::json& config, const std::string& where) const = 0;
};

using AdapterCatalog = config::Catalog<Adapter>;
AdapterCatalog& adapters();

/// Returns the tensors of an adapted model's adapter as PEFT's files have them.
std::vector<std::pair<std::string, at::Tensor>> adapter_weights(Model& model);
/// Makes them from `weights`: all trained parameters and buffers, by the model's own names.
std::vector<std::pair<std::string, at::Tensor>> adapter_weights(
    Model& model, const std::vector<std::pair<std::string, at::Tensor>>& weights);

/// Fills the trained parameters that have memory, and refuses a source as load_weights() does.
void load_adapter(Model& model, const TensorSource& source);

/// Adds each branch to the weight of its layer, if that has memory, in the master type, and sets the branch to zero.
void merge_adapter(Model& model);

/// Calls nn::Branch::fit() of each branch whose layer has memory. Call after the base is loaded.
void fit_branches(Model& model);

/// Returns whether training begins with values that are found in the base: every rank must then call the next two, in
/// this order, when a run begins anew, with buffers broadcast in between. Both do what has memory.
bool starts_from_base(Model& model);
void find_starts(Model& model);
void start_branches(Model& model);

/// Returns the full names of the parameters and buffers that were added to the model's own.
std::vector<std::string> branch_tensors(Model& model);

}  // namespace gputrain::models
