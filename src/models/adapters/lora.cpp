#include "lora.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/models/adapter.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/ops/activation.hpp"
#include "gputrain/ops/linear.hpp"
#include "targets.hpp"

namespace gputrain::models {
namespace {

constexpr const char* kKey = "model.adapter.";

class LoraBranch final : public nn::Branch {
 public:
  LoraBranch(const nn::Context& context, const nn::Linear::Options& layer, const LoraSettings& settings)
      : Branch(context), scale_(settings.scale()), dropout_(settings.dropout) {
    // nn::Linear starts with PEFT's usual values: Kaiming's uniform ones with a = sqrt(5).
    a_ = add_child<nn::Linear>("lora_A", context,
                               nn::Linear::Options{.in = layer.in, .out = settings.rank, .bias = false});
    b_ = add_child<nn::Linear>(
        "lora_B", context,
        nn::Linear::Options{.in = settings.rank, .out = layer.out, .bias = false, .weight_init = nn::Init::zeros()});
  }

  at::Tensor add_to(const at::Tensor& y, const at::Tensor& x) const override {
    const bool drops = is_training() && dropout_ > 0;
    const at::Tensor narrow = a_->forward(drops ? ops::dropout(x, dropout_) : x);
    // One product includes the scale and the sum, instead of a pass over y for each.
    const at::Tensor b = ops::operand(b_->weight(), context().policy.compute);
    const at::Tensor sum = at::addmm(y.reshape({-1, y.size(-1)}), narrow.reshape({-1, narrow.size(-1)}), b.t(),
                                     /*beta=*/1, /*alpha=*/scale_);
    return at::_unsafe_view(sum, y.sizes());
  }

  std::optional<ops::AdaptedLinear> low_rank(const at::Tensor& x) const override {
    const bool drops = is_training() && dropout_ > 0;
    return ops::AdaptedLinear{.a = a_->weight(),
                              .b = b_->weight(),
                              .scale = scale_,
                              .dropped = drops ? ops::dropout(x, dropout_) : at::Tensor()};
  }

  at::Tensor matrix() const override { return at::mm(b_->weight().detach(), a_->weight().detach()).mul_(scale_); }

  void clear() override { b_->weight().detach().zero_(); }

 private:
  double scale_, dropout_;
  nn::Linear *a_, *b_;
};

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

/// Returns the job's settings, completed by those of the folder, which it may not contradict except in dropout.
LoraSettings resolved(const LoraSpec& spec) {
  LoraSettings settings;
  if (spec.pretrained) {
    const auto folder = hub::pretrained_path(*spec.pretrained);
    const std::string where = (folder / kAdapterConfig).string();
    settings = lora_of(read_peft_config(folder.string()), where);
    require_equal("rank", spec.rank.value_or(settings.rank), settings.rank, where);
    require_equal("alpha", spec.alpha.value_or(settings.alpha), settings.alpha, where);
    require_equal("rslora", spec.rslora.value_or(settings.rslora), settings.rslora, where);
    const auto check_names = [&](const char* key, const std::vector<std::string>& mine,
                                 const std::vector<std::string>& theirs) {
      // PEFT writes a set in any order.
      if (!mine.empty()) require_equal(key, sorted(mine), sorted(theirs), where);
    };
    check_names("target_modules", spec.target_modules.values, settings.targets);
    check_names("modules_to_save", spec.modules_to_save.values, settings.modules_to_save);
  } else {
    settings.rank = spec.rank.value_or(settings.rank);
    settings.alpha = spec.alpha.value_or(static_cast<double>(settings.rank));
    settings.rslora = spec.rslora.value_or(false);
    settings.targets = spec.target_modules.values;
    if (settings.targets.empty()) settings.targets = {kAllLinear};
    settings.modules_to_save = spec.modules_to_save.values;
  }
  settings.dropout = spec.dropout.value_or(settings.dropout);
  return settings;
}

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
    const bool is_adapted = layer != nullptr && layer->has_branch();
    if (is_adapted) layers.names.push_back(given);
    if (is_adapted) layers.in_out = layer->options().order == nn::Linear::Order::in_out;
    (is_adapted ? adapted : others).insert(last);
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
    const auto layers = target_layers(model, settings_.targets, std::string(kKey) + "target_modules");
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
    for (const NamedLayer& one : layers) one.layer->add_branch<LoraBranch>(one.layer->options(), settings_);
  }

  std::string pretrained() const override {
    return spec_.pretrained ? hub::pretrained_path(*spec_.pretrained).string() : "";
  }
  bool is_written_merged() const override { return spec_.merge; }

  nlohmann::json config_of(Model& model, const std::string& base) const override {
    return peft_config(model, settings_, adapted_layers(model), base);
  }

  void check_config(const nlohmann::json& config, const std::string& where) const override {
    const LoraSettings theirs = lora_of(config, where);
    if (theirs.rank == settings_.rank && theirs.scale() == settings_.scale()) return;
    throw Error(ExitCode::data,
                {.what = "the adapter has rank " + text_of(theirs.rank) + " and scale " + text_of(theirs.scale()) +
                         ", the job's has rank " + text_of(settings_.rank) + " and scale " + text_of(settings_.scale()),
                 .where = where,
                 .hint = "evaluate it with the job that it was trained with"});
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

  LoraSpec spec_;
  LoraSettings settings_;
};

const config::Registered<Lora, LoraSpec> registered_lora{adapters(), "lora", "two narrow matrices beside dense layers"};

}  // namespace

double LoraSettings::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

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
      .aliases({"lora_target_modules", "lora_target", "adapter.targets"});
  d.key("rslora", &LoraSpec::rslora, "alpha/sqrt(rank) instead of alpha/rank (arXiv:2312.03732); null: false")
      .aliases({"use_rslora"});
  d.key("modules_to_save", &LoraSpec::modules_to_save, "modules that are trained whole, as lm_head")
      .aliases({"lora_modules_to_save", "additional_target"});
  d.key("merge", &LoraSpec::merge, "write model.safetensors with the adapter merged into it, too")
      .change(Change::safe)
      .aliases({"merge_lora"});
}

}  // namespace gputrain::models
