#include "weight_matching.hpp"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/nn/layers.hpp"

namespace gputrain::models {
namespace {

/// Differences between a file and a model, one line per kind.
class Mismatches {
 public:
  void add(const char* kind, std::string text) { found_[kind].push_back(std::move(text)); }
  bool empty() const { return found_.empty(); }
  bool has(const char* kind) const { return found_.contains(kind); }

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

constexpr const char *kOtherNumbers = "of another kind of number", *kUntied = "tied in the model but different here";

constexpr const char* kUntie =
    "\"tie_word_embeddings\": false in the config.json beside them keeps both; without one, "
    "model.config.tie_embeddings: false";

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

std::map<const void*, device::Split> splits_of(Model& model) {
  std::map<const void*, device::Split> splits;
  model.each_parameter([&](const std::string&, nn::Parameter& parameter) {
    if (parameter.split) splits[parameter.value.unsafeGetTensorImpl()] = *parameter.split;
  });
  return splits;
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

/// Parameters of a part of the head by its name.
std::map<std::string, std::set<std::string>> head_parts_of(Model& model) {
  std::map<std::string, std::set<std::string>> parts;
  const auto heads = model.head_parts();
  model.each_module([&](const std::string& prefix, nn::Module& module) {
    if (std::ranges::find(heads, &module) == heads.end()) return;
    module.each_parameter(
        [&](const std::string& name, const nn::Parameter&) { parts[prefix].insert(prefix + "." + name); });
  });
  return parts;
}

/// Whether two shapes differ only in their number of rows.
bool differ_in_rows(at::IntArrayRef a, at::IntArrayRef b) {
  return !a.empty() && !b.empty() && a[0] != b[0] && a.slice(1) == b.slice(1);
}

/// A batch norm's count of batches: no computation uses it, and older files do not have it.
bool is_counter(const at::Tensor& tensor) { return !tensor.is_floating_point() && tensor.dim() == 0; }

/// Whether numbers of one type are cast to the other. Floats of 8 bits mean nothing without the scales beside them.
bool is_cast(at::ScalarType theirs, at::ScalarType ours) {
  if (!at::isFloatingType(ours)) return at::isIntegralType(theirs, /*includeBool=*/true);
  return theirs == at::kFloat || theirs == at::kBFloat16 || theirs == at::kHalf || theirs == at::kDouble;
}

bool are_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.to(at::kFloat).equal(b.to(at::kFloat));
}

/// What the source's names and tensors mean to a model.
class Reading {
 public:
  Reading() = default;
  Reading(const Model& model, const TensorSource& source) : model_(&model), family_(source.family) {
    if (!family_) family_ = family_of(model);
  }
  std::string parameter_of(const std::string& file_name) const {
    return family_ ? family_->parameter_of(*model_, file_name) : file_name;
  }
  at::Tensor fitted(const std::string& file_name, const at::Tensor& theirs) const {
    return family_ ? family_->fitted(*model_, file_name, theirs) : theirs;
  }

 private:
  const Model* model_ = nullptr;
  std::shared_ptr<const PublishedFamily> family_;  // null: names are the model's
};

class Matching {
 public:
  Matching(Model& model, const TensorSource& source, OtherClasses other_classes)
      : source_(source), ours_(tensors_of(model)), splits_(splits_of(model)), reading_(model, source) {
    if (other_classes == OtherClasses::refused) return;
    last_layer_ = last_layer_of(model);
    may_lack_ = branches_of(model);
    head_parts_ = head_parts_of(model);
  }

  Matching(std::map<std::string, at::Tensor> targets, const TensorSource& source)
      : source_(source), ours_(std::move(targets)) {}

  MatchedWeights run() {
    const std::string prefix = best_prefix();
    const bool is_common =
        std::ranges::all_of(source_.names, [&](const std::string& name) { return name.starts_with(prefix); });
    for (const std::string& name : source_.names)
      take(name, reading_.parameter_of(name.substr(is_common ? prefix.size() : 0)));
    note_missing_parts();
    for (const auto& [name, tensor] : ours_) {
      if (is_missing(name)) continue;
      const bool may_lack = is_counter(tensor) || may_lack_.contains(tensor.unsafeGetTensorImpl());
      if (!may_lack && !filled_by_.contains(name)) wrong_.add("missing in the file", name);
    }
    if (!wrong_.empty()) refuse(is_common ? "" : prefix);
    return std::move(matched_);
  }

 private:
  /// What most of the names that the model knows have in front: nothing, `module.` of DistributedDataParallel, `model.`
  /// of Lightning. Of several the shortest.
  std::string best_prefix() const {
    std::map<std::string, size_t> known;  // names of the model by what stands before them
    for (const std::string& name : source_.names) {
      size_t begin = 0;
      do {
        if (ours_.contains(reading_.parameter_of(name.substr(begin)))) ++known[name.substr(0, begin)];
        begin = name.find('.', begin) + 1;
      } while (begin > 0);
    }
    const auto best = std::ranges::max_element(known, {}, [](const auto& entry) { return entry.second; });
    return best == known.end() ? "" : best->first;
  }

  void take(const std::string& name, const std::string& local) {
    if (local.empty()) return;
    const auto found = ours_.find(local);
    if (found == ours_.end()) return wrong_.add("unknown to the model", name);
    const at::Tensor& ours = found->second;
    const at::Tensor published = source_.tensor(name), theirs = reading_.fitted(name, published);
    const auto [filled, is_first] = filled_by_.emplace(local, name);
    if (!is_first) {
      if (!are_equal(theirs, source_.tensor(filled->second))) wrong_.add(kUntied, filled->second + " and " + name);
      return;
    }
    const auto split = splits_.find(ours.unsafeGetTensorImpl());
    const auto sizes = split == splits_.end() ? ours.sizes().vec() : split->second.whole_sizes(ours.sizes().vec());
    if (last_layer_.contains(ours.unsafeGetTensorImpl()) && differ_in_rows(theirs.sizes(), sizes)) {
      matched_.not_loaded.classes_left_out = theirs.size(0);
      return;
    }
    if (theirs.sizes() != sizes) {
      wrong_.add("of another shape", name + " " + text_of(theirs.sizes()) + ", the model has " + text_of(sizes));
    } else if (!is_cast(theirs.scalar_type(), ours.scalar_type())) {
      wrong_.add(kOtherNumbers, name + " " + at::toString(theirs.scalar_type()));
    }
    matched_.pairs.emplace(name, ours);
    if (theirs.sizes() != published.sizes()) matched_.fitted.emplace(name, theirs);
    if (split != splits_.end()) matched_.splits.emplace(name, split->second);
  }

  /// A part of the head is missing if the source has none of its parameters.
  void note_missing_parts() {
    for (const auto& [part, names] : head_parts_) {
      if (std::ranges::none_of(names, [&](const std::string& name) { return filled_by_.contains(name); }))
        matched_.not_loaded.missing_parts.push_back(part);
    }
  }

  bool is_missing(const std::string& name) const {
    return std::ranges::any_of(matched_.not_loaded.missing_parts,
                               [&](const std::string& part) { return head_parts_.at(part).contains(name); });
  }

  [[noreturn]] void refuse(const std::string& prefix) const {
    std::string hint = "use the model.type and model.config that the weights were trained with";
    if (!source_.sizes_hint.empty()) hint = source_.sizes_hint;
    if (!prefix.empty()) hint = "take '" + prefix + "' off the names that have it, and leave out the others";
    if (wrong_.has(kOtherNumbers))
      hint = "integers and 8-bit floats are not read: take weights in BF16, F16, F32 or F64";
    if (wrong_.has(kUntied)) hint = kUntie;
    throw Error(ExitCode::data, {.what = "these weights do not fit the model:" + wrong_.to_string(),
                                 .where = source_.where,
                                 .hint = std::move(hint)});
  }

  const TensorSource& source_;
  std::map<std::string, at::Tensor> ours_;
  std::map<const void*, device::Split> splits_;
  Reading reading_;
  std::set<const void*> last_layer_, may_lack_;
  std::map<std::string, std::set<std::string>> head_parts_;
  std::map<std::string, std::string> filled_by_;  // name of ours -> name in the source
  MatchedWeights matched_;
  Mismatches wrong_;
};

}  // namespace

MatchedWeights match_weights(Model& model, const TensorSource& source, OtherClasses other_classes) {
  return Matching(model, source, other_classes).run();
}

MatchedWeights match_tensors(const std::map<std::string, at::Tensor>& targets, const TensorSource& source) {
  return Matching(targets, source).run();
}

}  // namespace gputrain::models
