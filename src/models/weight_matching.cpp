#include "weight_matching.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/models/adapter.hpp"
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

/// Packed layers by the tensors with their codes, and the names of their other tensors. Leaves out those of which a
/// source, a checkpoint of ours, has all tensors by these names.
struct PackedLayers {
  PackedLayers(Model& model, const TensorSource& source) {
    const std::set<std::string> names(source.names.begin(), source.names.end());
    model.each_module([&](const std::string& name, nn::Module& module) {
      const auto* layer = dynamic_cast<const nn::Linear*>(&module);
      if (layer == nullptr || !layer->is_packed()) return;
      const std::vector<std::string> suffixes = layer->packed().suffixes();
      if (names.contains(name + ".weight" + suffixes.back())) return;
      by_codes[layer->packed().parts().front().unsafeGetTensorImpl()] = layer;
      for (const std::string& suffix : suffixes)
        if (!suffix.empty()) beside.insert(name + ".weight" + suffix);
    });
  }
  const nn::Linear* layer_of(const at::Tensor& codes) const {
    const auto found = by_codes.find(codes.unsafeGetTensorImpl());
    return found == by_codes.end() ? nullptr : found->second;
  }

  std::map<const void*, const nn::Linear*> by_codes;
  std::set<std::string> beside;
};

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

std::set<const void*> tensors_in(nn::Module& module) {
  std::set<const void*> tensors;
  const auto take = [&](const std::string&, const auto& one) { tensors.insert(one.value.unsafeGetTensorImpl()); };
  module.each_parameter(take);
  module.each_buffer(take);
  return tensors;
}

/// Returns the tensors of the layer that gives the classes that have a row for each.
std::set<const void*> last_layer_of(Model& model) {
  std::set<const void*> tensors;
  const auto take = [&](const std::string& name, const auto& one) {
    if (name.find("lora_A") == std::string::npos) tensors.insert(one.value.unsafeGetTensorImpl());
  };
  model.units().back().modules.back()->each_parameter(take);
  model.units().back().modules.back()->each_buffer(take);
  return tensors;
}

/// Returns the parameters and buffers that were added to the model's own.
std::set<const void*> branches_of(Model& model) {
  std::set<const void*> tensors;
  model.each_module([&](const std::string&, nn::Module& module) {
    if (dynamic_cast<nn::Branch*>(&module) != nullptr) tensors.merge(tensors_in(module));
  });
  return tensors;
}

/// Returns the parameters of each part of the head by its name.
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

bool differ_in_rows(at::IntArrayRef a, at::IntArrayRef b) {
  return !a.empty() && !b.empty() && a[0] != b[0] && a.slice(1) == b.slice(1);
}

/// Returns whether two shapes of convolutions differ only in the channels that they read.
bool differ_in_channels(at::IntArrayRef a, at::IntArrayRef b) {
  return a.size() == 4 && b.size() == 4 && a[0] == b[0] && a[1] != b[1] && a.slice(2) == b.slice(2);
}

/// Returns whether `theirs` is of a convolution of RGB images, and ours reads grey ones.
bool are_colours_for_grey(at::IntArrayRef theirs, at::IntArrayRef ours) {
  return differ_in_channels(theirs, ours) && theirs[1] == 3 && ours[1] == 1;
}

std::string channels_hint(int64_t theirs) {
  if (theirs == 1 || theirs == 3)
    return "the weights are of images of " + counted(theirs, "channel") +
           ": data.image.channels: " + std::to_string(theirs);
  return "the weights are of images of " + std::to_string(theirs) +
         " channels, and images are read with 1 or 3: keep those of the first layer that belong to red, green and "
         "blue, and save the file again";
}

constexpr const char* kTimm =
    "these names are timm's: of timm, ResNets, ViTs and ConvNeXts are read; of other models take torchvision's weights";

/// Returns whether this is a batch norm's count of batches, which no computation uses and older files lack.
bool is_counter(const at::Tensor& tensor) { return !tensor.is_floating_point() && tensor.dim() == 0; }

/// Returns whether numbers of one type are cast to the other. 8-bit floats mean nothing without the scales beside them.
bool is_cast(at::ScalarType theirs, at::ScalarType ours) {
  if (!at::isFloatingType(ours)) return at::isIntegralType(theirs, /*includeBool=*/true);
  return theirs == at::kFloat || theirs == at::kBFloat16 || theirs == at::kHalf || theirs == at::kDouble;
}

bool are_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.to(at::kFloat).equal(b.to(at::kFloat));
}

/// Meaning of the source's names and tensors for a model.
class Reading {
 public:
  Reading() = default;
  Reading(Model& model, const TensorSource& source) : model_(&model), family_(source.family), images_(source.images) {
    if (!family_) family_ = family_of(model);
    for (std::string& name : branch_tensors(model)) added_.insert(std::move(name));
  }
  std::string parameter_of(const std::string& file_name) const {
    return family_ && !added_.contains(file_name) ? family_->parameter_of(*model_, file_name) : file_name;
  }
  at::Tensor fitted(const std::string& file_name, const at::Tensor& theirs) const {
    return family_ ? family_->fitted(*model_, {.name = file_name, .values = theirs, .images = images_}) : theirs;
  }

 private:
  const Model* model_ = nullptr;
  std::shared_ptr<const PublishedFamily> family_;  // null: names are the model's
  std::set<std::string> added_;                    // by an adapter: no family names it
  std::optional<ImageSize> images_;
};

class Matching {
 public:
  Matching(Model& model, const TensorSource& source, OtherClasses other_classes)
      : source_(source),
        ours_(tensors_of(model)),
        packed_(std::in_place, model, source),
        splits_(splits_of(model)),
        reading_(model, source),
        last_layer_(last_layer_of(model)),
        other_classes_(other_classes) {
    std::erase_if(ours_, [&](const auto& named) { return packed_->beside.contains(named.first); });
    if (other_classes == OtherClasses::refused) return;
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
  /// Returns the prefix of most names that the model knows: nothing, `module.` of DistributedDataParallel, `model.` of
  /// Lightning. The shortest wins a tie.
  std::string best_prefix() const {
    std::map<std::string, size_t> known;  // number of the model's names by prefix
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
    const nn::Linear* const layer = packed_ ? packed_->layer_of(ours) : nullptr;
    if (source_.packed.contains(name)) return take_packed(name, local, ours, layer);
    const bool is_of_classes = last_layer_.contains(ours.unsafeGetTensorImpl());
    const at::Tensor published = source_.tensor(name), fitted = reading_.fitted(name, published);
    at::Tensor theirs = is_of_classes ? in_order_of_classes(fitted, source_.class_rows) : fitted;
    const auto [filled, is_first] = filled_by_.emplace(local, name);
    if (!is_first) {
      if (!are_equal(theirs, source_.tensor(filled->second))) wrong_.add(kUntied, filled->second + " and " + name);
      return;
    }
    const auto split = splits_.find(ours.unsafeGetTensorImpl());
    const auto here = layer != nullptr ? layer->stored_sizes() : ours.sizes().vec();
    const auto sizes = split == splits_.end() ? here : split->second.whole_sizes(here);
    if (is_of_classes && other_classes_ == OtherClasses::left_out && differ_in_rows(theirs.sizes(), sizes)) {
      matched_.not_loaded.classes_left_out = theirs.size(0);
      return;
    }
    if (other_classes_ == OtherClasses::left_out && are_colours_for_grey(theirs.sizes(), sizes)) {
      theirs = theirs.to(at::kFloat).sum(at::IntArrayRef{1}, /*keepdim=*/true);
      matched_.not_loaded.sums_colours = true;
    }
    if (theirs.sizes() != sizes) {
      note_channels(theirs.sizes(), sizes);
      wrong_.add("of another shape", name + " " + text_of(theirs.sizes()) + ", the model has " + text_of(sizes));
    } else if (!is_cast(theirs.scalar_type(), layer != nullptr ? at::kFloat : ours.scalar_type())) {
      wrong_.add(kOtherNumbers, name + " " + at::toString(theirs.scalar_type()));
    }
    matched_.pairs.emplace(name, ours);
    if (layer != nullptr) matched_.packed.emplace(name, layer);
    if (!theirs.is_same(published)) matched_.fitted.emplace(name, theirs);
    if (split != splits_.end()) matched_.splits.emplace(name, split->second);
  }

  /// Takes a matrix that is packed in the source.
  void take_packed(const std::string& name, const std::string& local, const at::Tensor& ours, const nn::Linear* layer) {
    if (layer == nullptr) return wrong_.add("quantised in the file, and trained or read in 16 bits here", name);
    const nn::PackedShape &theirs = source_.packed.at(name).shape, &shape = layer->packed().shape();
    if (theirs.rows != shape.rows || theirs.columns != shape.columns) {
      wrong_.add("of another shape", name + " " + text_of({theirs.rows, theirs.columns}) + ", the model has " +
                                         text_of({shape.rows, shape.columns}));
    }
    filled_by_.emplace(local, name);
    matched_.pairs.emplace(name, ours);
    matched_.packed.emplace(name, layer);
  }

  /// Notes the channels of the file's images if that is all in which the shapes differ.
  void note_channels(at::IntArrayRef theirs, at::IntArrayRef ours) {
    if (differ_in_channels(theirs, ours) && (ours[1] == 1 || ours[1] == 3)) channels_ = theirs[1];
  }

  /// Notes each part of the head for which the source has no parameter.
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
    if (channels_ > 0) hint = channels_hint(channels_);
    if (has_names_of_timm()) hint = kTimm;
    if (!prefix.empty()) hint = "take '" + prefix + "' off the names that have it, and leave out the others";
    if (wrong_.has(kOtherNumbers))
      hint = "integers and 8-bit floats are not read: take weights in BF16, F16, F32 or F64";
    if (wrong_.has(kUntied)) hint = kUntie;
    throw Error(ExitCode::data, {.what = "these weights do not fit the model:" + wrong_.to_string(),
                                 .where = source_.where,
                                 .hint = std::move(hint)});
  }

  /// Returns whether the file has a name that is unknown to the model and begins as in timm.
  bool has_names_of_timm() const {
    constexpr std::array<std::string_view, 6> kStarts{"conv_stem.",   "stem.",    "stages.",
                                                      "patch_embed.", "head.fc.", "blocks.0."};
    const auto is_of_timm = [&](const std::string& name) {
      return std::ranges::any_of(kStarts, [&](std::string_view start) { return name.starts_with(start); }) &&
             !ours_.contains(reading_.parameter_of(name));
    };
    return std::ranges::any_of(source_.names, is_of_timm);
  }

  const TensorSource& source_;
  std::map<std::string, at::Tensor> ours_;
  std::optional<PackedLayers> packed_;
  std::map<const void*, device::Split> splits_;
  Reading reading_;
  std::set<const void*> last_layer_, may_lack_;
  OtherClasses other_classes_ = OtherClasses::refused;
  std::map<std::string, std::set<std::string>> head_parts_;
  std::map<std::string, std::string> filled_by_;  // name of ours -> name in the source
  int64_t channels_ = 0;  // channels of the images that the file's first layer reads, if ours has others
  MatchedWeights matched_;
  Mismatches wrong_;
};

}  // namespace

at::Tensor in_order_of_classes(const at::Tensor& tensor, const std::vector<int64_t>& rows) {
  if (rows.empty() || tensor.dim() == 0 || tensor.size(0) != std::ssize(rows) || std::ranges::is_sorted(rows))
    return tensor;
  return at::index_select(tensor, 0, at::tensor(rows, at::kLong));
}

MatchedWeights match_weights(Model& model, const TensorSource& source, OtherClasses other_classes) {
  return Matching(model, source, other_classes).run();
}

MatchedWeights match_tensors(const std::map<std::string, at::Tensor>& targets, const TensorSource& source) {
  return Matching(targets, source).run();
}

}  // namespace gputrain::models
