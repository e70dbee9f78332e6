#include "gputrain/models/pretrained.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <ATen/core/grad_mode.h>

#include "gputrain/config/problem.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/nn/layers.hpp"

namespace gputrain::models {
namespace {

/// Differences between a file and a model, one line per kind.
class Mismatches {
 public:
  void add(const char* kind, std::string text) { found_[kind].push_back(std::move(text)); }
  bool empty() const { return found_.empty(); }

  std::string to_string() const {
    constexpr size_t kShown = 8;
    std::string text;
    for (const auto& [kind, names] : found_) {
      text += "\n  " + std::to_string(names.size()) + " " + kind + ": ";
      for (size_t i = 0; i < std::min(kShown, names.size()); ++i) text += (i > 0 ? ", " : "") + names[i];
      if (names.size() > kShown) text += ", ...";
    }
    return text;
  }

 private:
  std::map<std::string, std::vector<std::string>> found_;
};

std::string text_of(at::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

std::map<std::string, at::Tensor> tensors_of(Model& model) {
  std::map<std::string, at::Tensor> tensors;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) { tensors[name] = parameter.value; });
  model.each_buffer([&](const std::string& name, nn::Buffer& buffer) { tensors[name] = buffer.value; });
  return tensors;
}

std::set<const void*> parameters_of(nn::Module& module) {
  std::set<const void*> parameters;
  module.each_parameter(
      [&](const std::string&, nn::Parameter& parameter) { parameters.insert(parameter.value.unsafeGetTensorImpl()); });
  return parameters;
}

/// Parameters of the layer that gives the classes.
std::set<const void*> last_layer_of(Model& model) { return parameters_of(*model.units().back().modules.back()); }

/// Parameters that were added to the model's own.
std::set<const void*> branches_of(Model& model) {
  std::set<const void*> parameters;
  model.each_module([&](const std::string&, nn::Module& module) {
    if (dynamic_cast<nn::Branch*>(&module) != nullptr) parameters.merge(parameters_of(module));
  });
  return parameters;
}

/// Whether two shapes differ only in their number of rows.
bool differ_in_rows(at::IntArrayRef a, at::IntArrayRef b) {
  return !a.empty() && !b.empty() && a[0] != b[0] && a.slice(1) == b.slice(1);
}

/// A batch norm's count of batches: no computation uses it, and older files do not have it.
bool is_counter(const at::Tensor& tensor) { return !tensor.is_floating_point() && tensor.dim() == 0; }

struct Matched {
  std::map<std::string, at::Tensor> pairs;  // name in the source -> our tensor
  int64_t classes_left_out = 0;
};

/// The parameter that a name of the source stands for.
using ParameterOf = std::function<std::string(const std::string& file_name)>;

ParameterOf naming_of(const Model& model, const TensorSource& source) {
  std::shared_ptr<const PublishedFamily> family = source.family;
  if (!family) family = family_of(model);
  return [&model, family](const std::string& name) { return family ? family->parameter_of(model, name) : name; };
}

/// The prefix that DistributedDataParallel and torch.compile add to all names; empty if the model has such names.
std::string wrapping_of(const std::vector<std::string>& names, Model& model, const ParameterOf& parameter_of) {
  const auto ours = tensors_of(model);
  std::string wrapping;
  const auto all_have = [&](const std::string& more) {
    return std::ranges::all_of(names, [&](const std::string& name) { return name.starts_with(wrapping + more); });
  };
  if (names.empty() || ours.contains(parameter_of(names.front()))) return wrapping;
  for (;;) {
    const bool is_ddp = all_have("module.");
    if (!is_ddp && !all_have("_orig_mod.")) return wrapping;
    wrapping += is_ddp ? "module." : "_orig_mod.";
  }
}

Matched match(Model& model, const TensorSource& source, OtherClasses other_classes) {
  auto ours = tensors_of(model);
  const auto last_layer = other_classes == OtherClasses::left_out ? last_layer_of(model) : std::set<const void*>();
  const ParameterOf parameter_of = naming_of(model, source);
  const size_t wrapped = wrapping_of(source.names, model, parameter_of).size();
  Matched matched;
  Mismatches wrong;
  for (const std::string& name : source.names) {
    const std::string local = parameter_of(name.substr(wrapped));
    if (local.empty()) continue;
    const auto found = ours.find(local);
    if (found == ours.end()) {
      wrong.add("unknown to the model", name);
      continue;
    }
    const at::Tensor theirs = source.tensor(name);
    const bool is_last = last_layer.contains(found->second.unsafeGetTensorImpl());
    if (is_last && differ_in_rows(theirs.sizes(), found->second.sizes())) {
      matched.classes_left_out = theirs.size(0);
      ours.erase(found);
      continue;
    }
    if (theirs.sizes() != found->second.sizes()) {
      wrong.add("of another shape",
                name + " " + text_of(theirs.sizes()) + ", the model has " + text_of(found->second.sizes()));
    } else if (theirs.is_floating_point() != found->second.is_floating_point()) {
      wrong.add("of another kind of number", name);
    }
    matched.pairs.emplace(name, found->second);
    ours.erase(found);
  }
  const auto added = other_classes == OtherClasses::left_out ? branches_of(model) : std::set<const void*>();
  for (const auto& [name, tensor] : ours)
    if (!is_counter(tensor) && !added.contains(tensor.unsafeGetTensorImpl())) wrong.add("missing in the file", name);
  if (!wrong.empty()) {
    throw Error(ExitCode::data, {.what = "these weights do not fit the model:" + wrong.to_string(),
                                 .where = source.where,
                                 .hint = "use the model.type and model.config that the weights were trained with"});
  }
  return matched;
}

bool same_value(const std::string& a, const std::string& b) {
  if (a == b) return true;
  std::istringstream first(a), second(b);  // 1e-5 and 0.00001 are equal
  double x = 0, y = 0;
  return first >> x && second >> y && first.eof() && second.eof() && x == y;
}

}  // namespace

int64_t load_weights(Model& model, const TensorSource& source, OtherClasses other_classes) {
  const Matched found = match(model, source, other_classes);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : found.pairs) tensor.detach().copy_(source.tensor(name));
  return found.classes_left_out;
}

std::vector<std::string> settings_of(const PublishedModel& published, const config::Loaded& job,
                                     const std::string& key) {
  std::map<std::string, std::string> values;
  for (const config::Setting& setting : job.settings()) values[setting.key] = setting.value;
  std::vector<std::string> lines;
  std::vector<config::Problem> conflicts;
  const auto want = [&](const std::string& dotted, const std::string& value) {
    const std::string& mine = values[dotted];
    const bool is_said = job.origin(dotted) != "default" && mine != "null";
    if (is_said && same_value(mine, value)) return;
    if (is_said) {
      const auto error = job.error(dotted, "is " + mine + " here and " + value + " in the pretrained model",
                                   "remove it: the pretrained folder's config.json sets it");
      conflicts.insert(conflicts.end(), error.problems().begin(), error.problems().end());
    }
    lines.push_back(dotted + "=" + value);
  };
  want(key + ".type", published.type);
  for (const auto& [name, value] : published.options) want(key + ".config." + name, value);
  if (!conflicts.empty()) throw config::SpecError("the job and the pretrained model", std::move(conflicts));
  return lines;
}

}  // namespace gputrain::models
