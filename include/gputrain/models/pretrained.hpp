// Starting from published weights: what a Hugging Face folder says about a model, and how its tensors fill ours.
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

/// A config.json in our words.
struct PublishedModel {
  std::string type;                                          // entry of the catalog: "gpt"
  std::vector<std::pair<std::string, std::string>> options;  // option and value as YAML: "n_layer", "12"
};

/// Reads the config.json of a GPT-2 or Llama. `where` is its path. Throws Error(data) for one that is broken, or that
/// asks for something we do not compute.
PublishedModel published_model(const nlohmann::json& config, const std::string& where);

/// The `--set` lines that give a job those of these sizes that it does not say itself; load the job again with them on
/// top. `key` is where the job describes its model: "model". Throws SpecError for each thing the job itself sets
/// otherwise.
std::vector<std::string> settings_of(const PublishedModel& published, const config::Loaded& job,
                                     const std::string& key);

/// Tensors by name, wherever they are.
struct TensorSource {
  std::string where;  // for messages: a path
  std::vector<std::string> names;
  std::function<at::Tensor(const std::string& name)> tensor;
};

/// What becomes of a last layer that has another number of classes in the file than in the model.
enum class OtherClasses { refused, left_out };

/// Copies the source's tensors into the model's parameters and buffers, by the model's `parameter_of`, cast
/// to their types. Throws Error(data) that tells all that is missing, unknown or of another shape, before anything is
/// written. A last layer that is left out stays as it is in the model; returns the classes that it has in the file,
/// else 0.
int64_t load_weights(Model& model, const TensorSource& source, OtherClasses other_classes = OtherClasses::refused);

}  // namespace gputrain::models
