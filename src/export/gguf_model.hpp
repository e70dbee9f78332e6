// GGUF's names for the parts of published models, and the values that it stores in another order than their files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gguf_file.hpp"
#include "gputrain/checkpoint/safetensors.hpp"

namespace gputrain::app {

/// Architecture of a config.json.
class GgufModel {
 public:
  /// Throws Error(usage) for a model_type that GGUF does not know, or an option that it has no key for.
  explicit GgufModel(const nlohmann::json& config);

  const std::string& architecture() const noexcept { return architecture_; }
  /// Returns sizes and options, named "llama.block_count" and so on.
  std::vector<std::pair<std::string, GgufValue>> values() const;
  /// Returns the tensors of the model's files under GGUF's names, with values in GGUF's order.
  checkpoint::NamedTensors tensors(const checkpoint::NamedTensors& published) const;

 private:
  std::string name_of(const std::string& published) const;
  at::Tensor stored(const std::string& published, const at::Tensor& tensor) const;
  void add_rope(std::vector<std::pair<std::string, GgufValue>>& values) const;

  int64_t size(const char* key) const;
  double number(const char* key) const;
  nlohmann::json rope() const;  // rope_parameters or rope_scaling, of the layers without a window

  const nlohmann::json& config_;
  std::string type_, architecture_;
  int64_t heads_ = 0, key_heads_ = 0, head_channels_ = 0;
};

}  // namespace gputrain::app
