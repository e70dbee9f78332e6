// ConvNeXts of timm, as safetensors files; our own names are those of torchvision.
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "../../images/convnext.hpp"
#include "../config_json.hpp"

namespace gputrain::models {
namespace {

using Names = std::pair<std::string_view, std::string_view>;  // timm's and torchvision's

constexpr std::array<Names, 4> kConvnextNames{{{"stem.0.", "features.0.0."},
                                               {"stem.1.", "features.0.1."},
                                               {"head.norm.", "classifier.0."},
                                               {"head.fc.", "classifier.2."}}};

constexpr std::array<Names, 5> kConvnextBlockNames{{{"gamma", "layer_scale"},
                                                    {"conv_dw.", "block.0."},
                                                    {"norm.", "block.2."},
                                                    {"mlp.fc1.", "block.3."},
                                                    {"mlp.fc2.", "block.5."}}};

enum class Into { torchvision, timm };

template <class Table>
std::string renamed(std::string_view name, const Table& table, Into into) {
  for (const auto& [timm, torchvision] : table) {
    const std::string_view from = into == Into::timm ? torchvision : timm, to = into == Into::timm ? timm : torchvision;
    if (name.starts_with(from)) return std::string(to) + std::string(name.substr(from.size()));
  }
  return std::string(name);
}

/// Removes "PREFIX3." from a name and returns 3; nothing, if the name begins otherwise.
std::optional<int> take_number(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  int number = 0;
  const std::string_view rest = name.substr(prefix.size());
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  constexpr int kMost = 1000;
  if (error != std::errc() || number < 0 || number > kMost || end == rest.data() + rest.size() || *end != '.')
    return std::nullopt;
  name = rest.substr(static_cast<size_t>(end - rest.data()) + 1);
  return number;
}

class ConvnextFamily final : public PublishedFamily {
 public:
  explicit ConvnextFamily(const config::NoOptions&) {}

  bool means(const nlohmann::json& config) const override { return is_model_type(config, "convnext"); }

  PublishedModel model_of(const nlohmann::json& config, const std::string& where) const override {
    ConfigReader(config, where)
        .refuse("transformers' names of a ConvNeXt are not read",
                "take the weights of torchvision or timm, as a safetensors file without a config.json");
  }

  bool names(const Model& model) const override { return is_convnext(model); }
  nlohmann::json config_of(const Model&) const override { return {}; }

  std::string parameter_of(const Model&, const std::string& file_name) const override {
    std::string_view rest = file_name;
    const auto stage = take_number(rest, "stages.");
    if (!stage) return renamed(rest, kConvnextNames, Into::torchvision);
    constexpr std::string_view kBetween = "downsample.";
    if (rest.starts_with(kBetween))
      return "features." + std::to_string(2 * *stage) + "." + std::string(rest.substr(kBetween.size()));
    const auto block = take_number(rest, "blocks.");
    if (!block) return file_name;
    return "features." + std::to_string(2 * *stage + 1) + "." + std::to_string(*block) + "." +
           renamed(rest, kConvnextBlockNames, Into::torchvision);
  }

  std::string file_name_of(const Model& model, const std::string& parameter) const override {
    if (!is_written_for_timm(model)) return parameter;
    std::string_view rest = parameter;
    const auto part = take_number(rest, "features.");
    if (!part || *part == 0) return renamed(parameter, kConvnextNames, Into::timm);
    const std::string stage = "stages." + std::to_string(*part / 2) + ".";
    if (*part % 2 == 0) return stage + "downsample." + std::string(rest);
    const auto block = take_number(rest, "");
    return stage + "blocks." + std::to_string(*block) + "." + renamed(rest, kConvnextBlockNames, Into::timm);
  }

  at::Tensor fitted(const Model&, const FileTensor& theirs) const override {
    const bool is_factor = theirs.name.ends_with(".gamma") && theirs.values.dim() == 1;
    return is_factor ? theirs.values.reshape({-1, 1, 1}) : theirs.values;
  }
};

const config::Registered<ConvnextFamily, config::NoOptions> registered_convnext_family{families(), "convnext",
                                                                                       "ConvNeXt of timm"};

}  // namespace
}  // namespace gputrain::models
