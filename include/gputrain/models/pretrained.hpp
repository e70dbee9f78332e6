// Starting from published weights: reads a Hugging Face config.json and copies tensors into a model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include "gputrain/config/load.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::models {

/// A config.json as our options.
struct PublishedModel {
  std::string type;                                          // entry of the model catalog: "gpt"
  std::vector<std::pair<std::string, std::string>> options;  // option and value as YAML: "n_layer", "12"
};

/// Converts the config.json of a GPT-2 or Llama; `where` is its path, for messages. Throws Error(data) if it is broken
/// or asks for something that we do not support.
PublishedModel published_model(const nlohmann::json& config, const std::string& where);

/// Returns `--set` lines for the options that the job does not set itself; load the job again with them. `key` is the
/// model's key in the job: "model". Throws SpecError that lists each option that the job sets to another value.
std::vector<std::string> settings_of(const PublishedModel& published, const config::Loaded& job,
                                     const std::string& key);

/// Tensors by name, from any source.
struct TensorSource {
  std::string where;  // path, for messages
  std::vector<std::string> names;
  std::function<at::Tensor(const std::string& name)> tensor;
};

/// What to do with a last layer that has another number of classes in the file than in the model.
enum class OtherClasses { refused, left_out };

/// Copies the source's tensors into the model's parameters and buffers, mapped by the model's `parameter_of` and cast
/// to their types. Before it writes anything, it throws Error(data) that lists all missing, unknown and differently
/// shaped tensors. A last layer that is left out keeps the model's values; returns its number of classes in the file,
/// else 0.
int64_t load_weights(Model& model, const TensorSource& source, OtherClasses other_classes = OtherClasses::refused);

}  // namespace gputrain::models
