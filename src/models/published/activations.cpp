#include "activations.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace gputrain::models {

const char* activation_option(const ConfigReader& reader, const char* key, const char* fallback) {
  const std::string name = reader.text(key, fallback);
  constexpr std::array<std::pair<std::string_view, const char*>, 7> kActivations{{{"gelu_new", "gelu_tanh"},
                                                                                  {"gelu_pytorch_tanh", "gelu_tanh"},
                                                                                  {"gelu_fast", "gelu_tanh"},
                                                                                  {"gelu", "gelu"},
                                                                                  {"relu", "relu"},
                                                                                  {"silu", "silu"},
                                                                                  {"swish", "silu"}}};
  for (const auto& [theirs, ours] : kActivations) {
    if (theirs == name) return ours;
  }
  reader.refuse(std::string(key) + " '" + name + "' is not supported");
}

const char* activation_function(ops::Activation activation) {
  switch (activation) {
    case ops::Activation::gelu:
      return "gelu";
    case ops::Activation::relu:
      return "relu";
    case ops::Activation::silu:
      return "silu";
    default:
      return "gelu_new";
  }
}

}  // namespace gputrain::models
