// LoRA (Hu et al., arXiv:2106.09685): a dense layer W x + b becomes W x + b + scale B A dropout(x); W, b are frozen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/config/describe.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::models {

constexpr int64_t kMostRank = 1'000'000;
constexpr double kMostAlpha = 1e12;

/// `{match: q_proj, rank: 16, alpha: 32}`: another size of the adapter beside some layers.
struct LoraGroupSpec {
  config::OneOrMore<std::string> match;
  std::optional<int64_t> rank;
  std::optional<double> alpha;

  static void describe(config::Description<LoraGroupSpec>& d);
};

/// Keys of a job, named as in PEFT where it has them. Null or empty: those of `pretrained`, or the usual ones.
struct LoraSpec {
  std::optional<std::string> pretrained;
  std::optional<int64_t> rank;
  std::optional<double> alpha, dropout;
  config::OneOrMore<std::string> target_modules;
  std::vector<LoraGroupSpec> groups;
  std::optional<bool> rslora, dora;
  std::string init = "kaiming";
  config::OneOrMore<std::string> modules_to_save;
  bool merge = false;

  static void describe(config::Description<LoraSpec>& d);
};

/// The adapter beside one layer.
struct LoraSize {
  int64_t rank = 8;
  double alpha = 8;

  bool operator==(const LoraSize&) const = default;
};

/// Another size for the layers that a pattern means: a name or its end, or a regular expression.
struct LoraPattern {
  std::string match;
  std::optional<int64_t> rank;
  std::optional<double> alpha;
};

/// Settings of an adapter with every default resolved.
struct LoraSettings {
  LoraSize size;
  std::vector<LoraPattern> patterns;
  double dropout = 0;
  bool rslora = false, dora = false;
  std::string init;  // as in LoraSpec
  std::vector<std::string> targets, modules_to_save;

  double scale(const LoraSize& of) const;
};

/// Reads an adapter_config.json of PEFT. `where` is its path. Throws Error(data) for a file that is broken, of another
/// kind of adapter, or with a setting that we do not compute.
LoraSettings lora_of(const nlohmann::json& config, const std::string& where);

/// Dense layers of an adapter.
struct AdaptedLayers {
  struct Layer {
    std::string name;  // published
    LoraSize size;     // as it is written
  };
  std::vector<Layer> layers;
  std::vector<std::string> names;  // names as in PEFT's target_modules
  bool in_out = false;             // their weights are stored [in, out]
};

/// Returns the adapter_config.json of a model's adapter. `base`: path of the weights beside which it was trained.
nlohmann::json peft_config(const Model& model, const LoraSettings& settings, const AdaptedLayers& layers,
                           const std::string& base);

/// Reads the object in FOLDER/adapter_config.json. Throws Error(data).
nlohmann::json read_peft_config(const std::string& folder);

}  // namespace gputrain::models
