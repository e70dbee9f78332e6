#include "lora.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/models/adapter.hpp"
#include "gputrain/nn/layers.hpp"
#include "lora_branch.hpp"
#include "targets.hpp"

namespace gputrain::models {
namespace {

/// Returns the folder of an adapter to begin with: the named one, or that in a run's folder.
std::filesystem::path folder_of(const std::string& named) {
  const auto folder = hub::pretrained_path(named), in_run = folder / "adapter";
  return !exists(folder / kAdapterConfig) && exists(in_run / kAdapterConfig) ? in_run : folder;
}

constexpr const char* kKey = "model.adapter.";

[[noreturn]] void refuse_other(const std::string& key, const std::string& mine, const std::string& theirs,
                               const std::string& where) {
  throw Error(ExitCode::usage, {.what = "is " + mine + " here and " + theirs + " in " + where,
                                .where = kKey + key,
                                .hint = "remove it: the adapter's folder sets it"});
}

std::string text_of(double number) { return nlohmann::json(number).dump(); }
std::string text_of(int64_t number) { return std::to_string(number); }
std::string text_of(bool flag) { return flag ? "true" : "false"; }
std::string text_of(const std::vector<std::string>& names) { return nlohmann::json(names).dump(); }

template <class Value>
void require_equal(const char* key, const Value& mine, const Value& theirs, const std::string& where) {
  if (mine != theirs) refuse_other(key, text_of(mine), text_of(theirs), where);
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::ranges::sort(names);
  return names;
}

/// Refuses keys with which an adapter begins, beside one that has begun.
void refuse_other_start(const LoraSpec& spec, const std::string& where) {
  const auto refuse = [&](const char* key, const char* what) {
    throw Error(ExitCode::usage, {.what = std::string(what) + " " + where,
                                  .where = std::string(kKey) + key,
                                  .hint = "remove it, or model.adapter.pretrained"});
  };
  if (spec.init != LoraSpec().init) refuse("init", "an adapter that begins with trained values has no other start:");
  if (!spec.groups.empty()) refuse("groups", "the sizes of the adapter are those of");
}

/// Returns the job's settings, completed by those of the folder, which it may not contradict except in dropout.
LoraSettings resolved(const LoraSpec& spec) {
  LoraSettings settings;
  if (spec.pretrained) {
    const auto folder = folder_of(*spec.pretrained);
    const std::string where = (folder / kAdapterConfig).string();
    settings = lora_of(read_peft_config(folder.string()), where);
    require_equal("rank", spec.rank.value_or(settings.size.rank), settings.size.rank, where);
    require_equal("alpha", spec.alpha.value_or(settings.size.alpha), settings.size.alpha, where);
    require_equal("rslora", spec.rslora.value_or(settings.rslora), settings.rslora, where);
    require_equal("dora", spec.dora.value_or(settings.dora), settings.dora, where);
    refuse_other_start(spec, where);
    const auto check_names = [&](const char* key, const std::vector<std::string>& mine,
                                 const std::vector<std::string>& theirs) {
      // PEFT writes a set in any order.
      if (!mine.empty()) require_equal(key, sorted(mine), sorted(theirs), where);
    };
    check_names("modules_to_save", spec.modules_to_save.values, settings.modules_to_save);
  } else {
    settings.size.rank = spec.rank.value_or(settings.size.rank);
    settings.size.alpha = spec.alpha.value_or(static_cast<double>(settings.size.rank));
    settings.rslora = spec.rslora.value_or(false);
    settings.dora = spec.dora.value_or(false);
    for (const LoraGroupSpec& group : spec.groups)
      for (const std::string& match : group.match.values)
        settings.patterns.push_back({.match = match, .rank = group.rank, .alpha = group.alpha});
    settings.targets = spec.target_modules.values;
    if (settings.targets.empty()) settings.targets = {kAllLinear};
    settings.modules_to_save = spec.modules_to_save.values;
  }
  settings.init = spec.init;
  settings.dropout = spec.dropout.value_or(settings.dropout);
  return settings;
}

/// Sizes of the adapter beside each layer.
class Sizes {
 public:
  Sizes(const LoraSettings& settings, std::string where, ExitCode code)
      : settings_(settings), where_(std::move(where)), code_(code), used_(settings.patterns.size()) {}

  LoraSize of(const std::string& layer) {
    std::optional<int64_t> rank;
    std::optional<double> alpha;
    for (size_t i = 0; i < used_.size(); ++i) {
      const LoraPattern& pattern = settings_.patterns[i];
      if (!is_end_of_name(pattern.match, layer, where_)) continue;
      used_[i] = true;
      take(pattern.rank, rank, layer, "rank");
      take(pattern.alpha, alpha, layer, "alpha");
    }
    return {.rank = rank.value_or(settings_.size.rank), .alpha = alpha.value_or(settings_.size.alpha)};
  }

  /// Throws an error for a pattern that has meant no layer.
  void check_all_used() const {
    const auto unused = std::ranges::find(used_, false);
    if (unused == used_.end()) return;
    const LoraPattern& pattern = settings_.patterns[static_cast<size_t>(unused - used_.begin())];
    refuse("'" + pattern.match + "' means none of the layers that are adapted",
           "a layer's name or its end, as q_proj or layers.0.self_attn.q_proj");
  }

 private:
  template <class Value>
  void take(const std::optional<Value>& from, std::optional<Value>& into, const std::string& layer, const char* what) {
    if (!from) return;
    if (into && *into != *from)
      refuse("'" + layer + "' has two sizes: " + what + " " + text_of(*into) + " and " + text_of(*from), "");
    into = from;
  }
  [[noreturn]] void refuse(std::string what, std::string hint) const {
    throw Error(code_, {.what = std::move(what), .where = where_, .hint = std::move(hint)});
  }

  const LoraSettings& settings_;
  std::string where_;
  ExitCode code_;
  std::vector<bool> used_;  // by pattern
};

/// Names the adapted layers as PEFT's target_modules does: by the last part of the name (q_proj) if all layers with
/// that name are adapted, else each by its whole name.
AdaptedLayers adapted_layers(Model& model) {
  const Published published(model);
  AdaptedLayers layers;
  std::set<std::string> adapted, others;  // last parts of names
  model.each_module([&](const std::string& name, nn::Module& module) {
    if (name.empty() || dynamic_cast<nn::Branch*>(&module) != nullptr) return;  // a branch has its layer's name
    const std::string given = published.module(name), last = given.substr(given.rfind('.') + 1);
    const auto* layer = dynamic_cast<nn::Linear*>(&module);
    const auto* branch = layer != nullptr ? dynamic_cast<const LoraBranch*>(layer->branch()) : nullptr;
    (branch != nullptr ? adapted : others).insert(last);
    if (branch == nullptr) return;
    layers.layers.push_back({given, branch->size_in_files()});
    layers.names.push_back(given);
    layers.in_out = layer->is_in_out();
  });
  const bool is_ambiguous =
      std::ranges::any_of(adapted, [&](const std::string& last) { return others.contains(last); });
  if (!is_ambiguous) layers.names.assign(adapted.begin(), adapted.end());
  return layers;
}

class Lora final : public Adapter {
 public:
  explicit Lora(const LoraSpec& spec) : spec_(spec), settings_(resolved(spec)) {}

  void adapt(Model& model) const override {
    const std::string target_key = std::string(kKey) + "target_modules";
    const auto layers = target_layers(model, settings_.targets, target_key);
    if (const auto& own = spec_.target_modules.values; spec_.pretrained && !own.empty()) {
      if (target_layers(model, own, target_key) != layers)
        refuse_other("target_modules", text_of(own), text_of(settings_.targets), pretrained() + "/" + kAdapterConfig);
    }
    const std::string save_key = std::string(kKey) + "modules_to_save";
    // PEFT names both usual heads, and leaves out the one that a model does not have.
    const auto saved = modules_to_save(model, settings_.modules_to_save, save_key, spec_.pretrained.has_value());
    std::set<const void*> trained;
    for (nn::Module* module : saved) {
      for (const NamedLayer& one : layers) refuse_adapted(*module, one, save_key);
      module->each_parameter([&](const std::string&, nn::Parameter& parameter) { trained.insert(&parameter); });
    }
    model.each_parameter([&](const std::string&, nn::Parameter& parameter) {
      if (!trained.contains(&parameter)) parameter.freeze();
    });
    Sizes sizes(settings_, spec_.pretrained ? pretrained() + "/" + kAdapterConfig : std::string(kKey) + "groups",
                spec_.pretrained ? ExitCode::data : ExitCode::usage);
    const Published published(model);
    std::vector<LoraSize> of_layers;
    for (const NamedLayer& one : layers) of_layers.push_back(sizes.of(published.module(one.name)));
    check_starts(layers, of_layers);
    for (size_t i = 0; i < layers.size(); ++i)
      layers[i].layer->add_branch<LoraBranch>(*layers[i].layer, settings_, of_layers[i]);
    if (!spec_.pretrained) sizes.check_all_used();  // PEFT lets such patterns stand
  }

  std::string pretrained() const override { return spec_.pretrained ? folder_of(*spec_.pretrained).string() : ""; }
  bool is_written_merged() const override { return spec_.merge; }

  std::string describe() const override {
    const auto& [rank, alpha] = settings_.size;
    std::string text = fmt::format("lora rank {}, alpha {:g}", rank, alpha);
    if (!settings_.patterns.empty()) text += ", " + counted(std::ssize(settings_.patterns), "other size");
    if (settings_.rslora) text += ", rslora";
    if (settings_.dora) text += ", dora";
    if (settings_.init != LoraSpec().init) text += ", start " + settings_.init;
    if (settings_.dropout > 0) text += fmt::format(", dropout {:g}", settings_.dropout);
    return text + (spec_.pretrained ? "  from " + *spec_.pretrained : "");
  }

  nlohmann::json config_of(Model& model, const std::string& base) const override {
    return peft_config(model, settings_, adapted_layers(model), base);
  }

  void check_config(Model& model, const nlohmann::json& config, const std::string& where) const override {
    const LoraSettings theirs = lora_of(config, where);
    const auto refuse = [&](const std::string& here, const std::string& there) {
      throw Error(ExitCode::data, {.what = "the adapter has " + there + ", the job's has " + here,
                                   .where = where,
                                   .hint = "evaluate it with the job that it was trained with"});
    };
    if (theirs.dora != settings_.dora)
      refuse(theirs.dora ? "none" : "DoRA's magnitudes", theirs.dora ? "DoRA's magnitudes" : "none");
    Sizes sizes(theirs, where, ExitCode::data);
    const auto text = [](const LoraSettings& settings, const LoraSize& size) {
      return "rank " + text_of(size.rank) + " and scale " + text_of(settings.scale(size));
    };
    for (const auto& [name, ours] : adapted_layers(model).layers) {
      const LoraSize size = sizes.of(name);
      if (const std::string here = text(settings_, ours), there = text(theirs, size); here != there)
        refuse(here, there);
    }
  }

 private:
  static void refuse_adapted(nn::Module& saved, const NamedLayer& adapted, const std::string& key) {
    saved.each_module([&](const std::string&, nn::Module& inner) {
      if (&inner != adapted.layer) return;
      throw Error(ExitCode::usage, {.what = "'" + adapted.name + "' is trained whole, and a target too",
                                    .where = key,
                                    .hint = "take it out of one of modules_to_save and target_modules"});
    });
  }

  /// Throws Error(usage) if a layer's weight has no start of its rank.
  void check_starts(const std::vector<NamedLayer>& layers, const std::vector<LoraSize>& sizes) const {
    if (settings_.init == "kaiming" || settings_.init == "gaussian") return;
    const auto most = [](const NamedLayer& layer) {
      return std::min(layer.layer->options().in, layer.layer->options().out);
    };
    const NamedLayer* least = nullptr;
    for (size_t i = 0; i < layers.size(); ++i)
      if (sizes[i].rank > most(layers[i]) && (least == nullptr || most(layers[i]) < most(*least))) least = &layers[i];
    if (least == nullptr) return;
    throw Error(ExitCode::usage, {.what = settings_.init + " takes the start from the layer's weight, and that of '" +
                                          least->name + "' has rank " + std::to_string(most(*least)) + " at most",
                                  .where = std::string(kKey) + "init",
                                  .hint = "rank: " + std::to_string(most(*least)) + ", or init: kaiming"});
  }

  LoraSpec spec_;
  LoraSettings settings_;
};

const config::Registered<Lora, LoraSpec> registered_lora{adapters(), "lora", "two narrow matrices beside dense layers"};

}  // namespace

double LoraSettings::scale(const LoraSize& of) const {
  const auto rank = static_cast<double>(of.rank);
  return of.alpha / (rslora ? std::sqrt(rank) : rank);
}

void LoraGroupSpec::describe(config::Description<LoraGroupSpec>& d) {
  d.summary("another size of the adapter beside some layers");
  d.key("match", &LoraGroupSpec::match, "the layers: names or their ends, or regular expressions").required();
  d.key("rank", &LoraGroupSpec::rank, "instead of the adapter's").range(1, static_cast<double>(kMostRank));
  d.key("alpha", &LoraGroupSpec::alpha, "instead of the adapter's").above(0).below(kMostAlpha);
  d.check([](const LoraGroupSpec& group, config::SpecIssues& issues) {
    if (!group.rank && !group.alpha) issues.add("match", "the group changes nothing", "rank or alpha");
  });
}

namespace {

/// Returns the layers that other tools name `all`, or with commas.
std::string modules_in_our_words(const std::string& theirs) {
  if (theirs == "all") return "all-linear";
  return theirs.find(',') == std::string::npos ? theirs : "[" + theirs + "]";
}

}  // namespace

void LoraSpec::describe(config::Description<LoraSpec>& d) {
  using config::Change;
  d.summary("LoRA (arXiv:2106.09685): trains A and B in y = W x + b + alpha/rank B A dropout(x), all else is frozen.");
  d.key("pretrained", &LoraSpec::pretrained,
        "folder of an adapter to start from, PEFT's or of a run; it gives what the job leaves out")
      .path();
  d.key("rank", &LoraSpec::rank, "columns of A and B; null: 8")
      .range(1, static_cast<double>(kMostRank))
      .aliases({"r", "lora_r", "lora_rank"});
  d.key("alpha", &LoraSpec::alpha, "the adapter counts alpha/rank times; null: rank")
      .above(0)
      .below(kMostAlpha)
      .aliases({"lora_alpha"});
  d.key("dropout", &LoraSpec::dropout, "probability on the adapter's input; null: 0")
      .range(0, 0.999)
      .change(Change::needs_accept)
      .aliases({"lora_dropout"});
  d.key("target_modules", &LoraSpec::target_modules,
        "dense layers that are adapted: names or their ends, as q_proj, regular expressions of whole names, or "
        "all-linear: all but the one that gives the classes; empty: all-linear. Experts are not adapted")
      .aliases({"adapter.targets"})
      .aliases("lora_target_modules", modules_in_our_words)
      .aliases("lora_target", modules_in_our_words);
  d.key("groups", &LoraSpec::groups,
        "other ranks or alphas for layers by name, [{match, rank, alpha}]: PEFT's rank_pattern and alpha_pattern");
  d.key("dora", &LoraSpec::dora,
        "DoRA (arXiv:2402.09353): also trains the length of each row of the layer's weight; null: false")
      .aliases({"use_dora", "peft_use_dora"});
  d.key("init", &LoraSpec::init,
        "the start of A; B starts as 0. pissa (arXiv:2404.02948), pissa_niter_16, which is nearly the same and faster, "
        "and olora (arXiv:2406.01775) take both from the layer's weight; the file then has twice the rank")
      .choices({"kaiming", "gaussian", "pissa", "pissa_niter_16", "olora"})
      .aliases({"init_lora_weights", "peft_init_lora_weights"});
  d.key("rslora", &LoraSpec::rslora, "alpha/sqrt(rank) instead of alpha/rank (arXiv:2312.03732); null: false")
      .aliases({"use_rslora"});
  d.key("modules_to_save", &LoraSpec::modules_to_save,
        "modules that are trained whole, as lm_head; no embedding that is the head, too")
      .aliases({"lora_modules_to_save", "additional_target"});
  d.key("merge", &LoraSpec::merge, "write model.safetensors with the adapter merged into it, too")
      .change(Change::safe)
      .aliases({"merge_lora"});
}

}  // namespace gputrain::models
