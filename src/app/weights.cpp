#include "weights.hpp"

#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/models/pretrained.hpp"

namespace gputrain::app {

checkpoint::NamedTensors named_weights(models::Model& model) {
  checkpoint::NamedTensors tensors;
  model.each_parameter(
      [&](const std::string& name, nn::Parameter& parameter) { tensors.emplace_back(name, parameter.value.detach()); });
  model.each_buffer([&](const std::string& name, nn::Buffer& buffer) {
    if (buffer.persistent) tensors.emplace_back(name, buffer.value);
  });
  return tensors;
}

void load_weights(models::Model& model, const std::filesystem::path& path) {
  const auto file_path = std::filesystem::is_directory(path) ? path / "model.safetensors" : path;
  const checkpoint::SafetensorsFile file(file_path);
  models::load_weights(model, {.where = file_path.string(), .names = file.names(), .tensor = [&](const std::string& name) {
                                 return file.tensor(name);
                               }});
}

void write_weights(models::Model& model, const RunFolder& folder) {
  checkpoint::write_safetensors(folder.weights(), named_weights(model));
  const auto config = model.ecosystem_config();
  if (!config.is_null()) write_file_atomically(folder.model_config(), config.dump(2) + "\n", ExitCode::environment);
}

}  // namespace gputrain::app
