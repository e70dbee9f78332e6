#include "targets.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "../texts/encoder.hpp"
#include "../texts/gpt.hpp"
#include "gputrain/config/names.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::models {
namespace {

struct NamedModule {
  std::string name, published;
  nn::Module* module;
};

std::vector<NamedModule> modules_of(Model& model) {
  const Published published(model);
  std::vector<NamedModule> modules;
  model.each_module([&](const std::string& name, nn::Module& module) {
    if (!name.empty()) modules.push_back({name, published.module(name), &module});
  });
  return modules;
}

[[noreturn]] void refuse(const std::string& key, std::string what, std::string hint) {
  throw Error(ExitCode::usage, {.what = std::move(what), .where = key, .hint = std::move(hint)});
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

/// Suggests the names nearest to the target, or lists all.
std::string hint_for(const std::string& target, const std::vector<NamedModule>& modules) {
  std::set<std::string> parts;
  for (const NamedModule& one : modules) parts.insert(last_part(one.published));
  const std::vector<std::string> candidates(parts.begin(), parts.end());
  if (std::string guess = config::did_you_mean(last_part(target), candidates); !guess.empty()) return guess;
  std::string text = "there are ";
  for (const std::string& part : candidates) text += (part == candidates.front() ? "" : ", ") + part;
  return text;
}

/// Returns whether the target means modules by the ends of their names, not by a regular expression.
bool is_name(const std::string& target) {
  return std::ranges::all_of(target,
                             [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; });
}

/// Regular expression that matches whole names.
class WholeName {
 public:
  WholeName(const std::string& pattern, const std::string& key)
      : code_(nullptr, pcre2_code_free),
        data_(nullptr, pcre2_match_data_free),
        limits_(nullptr, pcre2_match_context_free) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &at, nullptr));
    if (!code_) {
      PCRE2_UCHAR message[128] = {};
      pcre2_get_error_message(error, message, sizeof message);
      refuse(key, "'" + pattern + "' is no regular expression: " + reinterpret_cast<const char*>(message), "");
    }
    constexpr uint32_t kMostSteps = 100'000;
    data_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    limits_.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(limits_.get(), kMostSteps);
  }

  bool matches(const std::string& name) const {
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data_.get(),
                       limits_.get()) >= 0;
  }

 private:
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code_;
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data_;
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits_;
};

bool is_or_ends_in(const std::string& name, const std::string& target) {
  return name == target || name.ends_with("." + target);
}

/// Returns whether a name is that of a part of the target: "classifier.dense" is one of "classifier".
bool is_inside(const std::string& name, const std::string& target) {
  return name.starts_with(target + ".") || name.find("." + target + ".") != std::string::npos;
}

std::vector<NamedModule> meant_by(const std::string& target, const std::vector<NamedModule>& modules,
                                  const std::string& key) {
  std::vector<NamedModule> meant;
  const auto take = [&](const auto& matches) {
    std::ranges::copy_if(modules, std::back_inserter(meant), [&](const NamedModule& one) {
      return matches(one.name) || (one.published != one.name && matches(one.published));
    });
  };
  if (is_name(target)) {
    take([&](const std::string& name) { return is_or_ends_in(name, target); });
  } else {
    const WholeName pattern(target, key);
    take([&](const std::string& name) { return pattern.matches(name); });
  }
  return meant;
}

/// Returns whether the model's head is its embedding.
bool is_tied(const Model& model) {
  if (const auto* encoder = dynamic_cast<const Encoder*>(&model)) return encoder->sizes().head == HeadKind::mlm;
  const auto* gpt = dynamic_cast<const Gpt*>(&model);
  return gpt != nullptr && gpt->spec().tie_embeddings;
}

/// Returns whether a module is the embedding of a model whose head it is, too.
bool is_tied_embedding(Model& model, const nn::Module* module) {
  return is_tied(model) && dynamic_cast<const nn::Embedding*>(module) != nullptr &&
         module == model.units().front().modules.front();
}

[[noreturn]] void refuse_unknown(const Model& model, const std::string& target, const std::string& key,
                                 const std::vector<NamedModule>& candidates, const char* what) {
  if (is_tied(model) && (last_part(target) == "lm_head" || last_part(target) == "decoder"))
    refuse(key, "'" + target + "' is tied to the embedding in this model, and cannot be adapted by itself",
           "leave " + target + " out: a matrix that is both stays frozen");
  refuse(key, "'" + target + "' " + what, hint_for(target, candidates));
}

/// Returns the dense layers outside mixtures of experts, which other programs store together and do not adapt singly.
std::vector<NamedModule> dense_layers_of(const std::vector<NamedModule>& modules) {
  std::vector<NamedModule> dense;
  std::string mixture = "/";  // name of a mixture and a dot
  for (const NamedModule& one : modules) {
    if (dynamic_cast<nn::Experts*>(one.module) != nullptr) mixture = one.name + ".";
    if (dynamic_cast<nn::Linear*>(one.module) != nullptr && !one.name.starts_with(mixture)) dense.push_back(one);
  }
  return dense;
}

std::set<nn::Module*> layers_meant_by(Model& model, const std::string& target, const std::string& key,
                                      const std::vector<NamedModule>& modules) {
  const std::vector<NamedModule> dense = dense_layers_of(modules);
  std::set<nn::Module*> layers;
  if (target == kAllLinear) {
    const nn::Module* head = model.units().back().modules.back();
    for (const NamedModule& one : dense)
      if (one.module != head) layers.insert(one.module);
    if (layers.empty()) refuse(key, "the model has no dense layers besides its last one", "");
    return layers;
  }
  for (const NamedModule& one : meant_by(target, modules, key)) {
    if (dynamic_cast<nn::Embedding*>(one.module) != nullptr)
      refuse(key, "'" + target + "' means the embedding '" + one.name + "', but only dense layers are adapted",
             "leave " + target + " out" +
                 (is_tied_embedding(model, one.module)
                      ? ": the head is this matrix, too, and stays frozen"
                      : ", or train it whole: modules_to_save: [" + last_part(one.published) + "]"));
    if (dynamic_cast<nn::Linear*>(one.module) != nullptr) layers.insert(one.module);
  }
  if (layers.empty()) refuse_unknown(model, target, key, dense, "means no dense layer of the model");
  return layers;
}

}  // namespace

std::string Published::module(const std::string& name) const {
  constexpr std::string_view kWeight = ".weight";
  const std::string weight = parameter(name + std::string(kWeight));
  return weight.ends_with(kWeight) ? weight.substr(0, weight.size() - kWeight.size()) : name;
}

bool is_end_of_name(const std::string& pattern, const std::string& name, const std::string& key) {
  return WholeName("(?:.*\\.)?(?:" + pattern + ")", key).matches(name);
}

std::vector<NamedLayer> target_layers(Model& model, const std::vector<std::string>& targets, const std::string& key) {
  const std::vector<NamedModule> modules = modules_of(model);
  std::set<nn::Module*> meant;
  for (const std::string& target : targets) meant.merge(layers_meant_by(model, target, key, modules));
  std::vector<NamedLayer> layers;
  for (const NamedModule& one : modules)
    if (meant.contains(one.module)) layers.push_back({one.name, dynamic_cast<nn::Linear*>(one.module)});
  return layers;
}

std::vector<nn::Module*> modules_to_save(Model& model, const std::vector<std::string>& names, const std::string& key,
                                         bool may_be_missing) {
  const std::vector<NamedModule> modules = modules_of(model);
  std::vector<nn::Module*> saved;
  for (const std::string& name : names) {
    const size_t before = saved.size();
    for (const NamedModule& one : modules) {
      if (!is_or_ends_in(one.name, name) && !is_or_ends_in(one.published, name) && !is_inside(one.published, name))
        continue;
      if (is_tied_embedding(model, one.module))
        refuse(key, "'" + name + "' is the head too in this model, and others would take only one of the two",
               "leave " + name + " out: a matrix that is both stays frozen");
      saved.push_back(one.module);
    }
    if (saved.size() == before && !may_be_missing)
      refuse_unknown(model, name, key, modules, "means no module of the model");
  }
  return saved;
}

}  // namespace gputrain::models
