#include "gputrain/models/pretrained.hpp"

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/aminmax.h>
#include <fmt/format.h>

#include "gputrain/config/problem.hpp"
#include "gputrain/core/activity.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/models/adapter.hpp"
#include "gputrain/models/image_layouts.hpp"
#include "gputrain/nn/split.hpp"
#include "weight_matching.hpp"

namespace gputrain::models {
namespace {

/// Returns whether all values are finite, also when they are cast to this type.
bool is_finite(const at::Tensor& tensor, at::ScalarType type) {
  if (!tensor.is_floating_point() || tensor.numel() == 0) return true;
  const auto [least, most] = at::aminmax(tensor);  // both NaN if one value is
  return std::isfinite(least.to(type).item<double>()) && std::isfinite(most.to(type).item<double>());
}

std::string file_of(const TensorSource& source, const std::string& name) {
  return source.file_of ? source.file_of(name) : source.where;
}

/// Throws Error(data) for values that are not finite in the type of the model's tensor.
void require_finite(const TensorSource& source, const std::string& name, at::ScalarType type) {
  const at::Tensor tensor = source.tensor(name);
  if (is_finite(tensor, type)) return;
  const bool is_too_large = is_finite(tensor, tensor.scalar_type());
  const std::string too_large = std::string("values too large for ") + at::toString(type);
  throw Error(ExitCode::data,
              {.what = "tensor '" + name + "' holds " + (is_too_large ? too_large : "NaN or infinite values"),
               .where = file_of(source, name),
               .hint = is_too_large ? "precision: bf16" : "get the file again, or take weights of an earlier step"});
}

/// Returns whether this is a matrix with one value everywhere; biases and weights of norms may be constant.
bool is_constant_matrix(const at::Tensor& tensor) {
  if (tensor.dim() < 2 || tensor.numel() < 2) return false;
  const at::Tensor values = tensor.flatten();
  if (values[0].item<double>() != values[1].item<double>()) return false;  // usual case, without reading all values
  const auto [least, most] = at::aminmax(values);
  return least.item<double>() == most.item<double>();
}

void warn_of_constants(const TensorSource& source, const std::vector<std::string>& names) {
  if (names.empty()) return;
  const auto value = source.tensor(names.front()).flatten()[0].item<double>();
  const std::string others =
      names.size() == 1 ? "" : " (the first of " + counted(std::ssize(names), "such tensor") + ")";
  log::warning(
      fmt::format("{}: tensor '{}'{} holds {} everywhere, as weights that were never trained or never written do",
                  file_of(source, names.front()), names.front(), others, value));
}

bool same_value(const std::string& a, const std::string& b) {
  if (a == b) return true;
  std::istringstream first(a), second(b);  // 1e-5 and 0.00001 are equal
  double x = 0, y = 0;
  return first >> x && second >> y && first.eof() && second.eof() && x == y;
}

}  // namespace

namespace {

void fill(const MatchedWeights& found, const TensorSource& source) {
  const at::NoGradGuard no_grad;
  std::vector<std::string> constant;
  Activity activity("model", "reading " + source.where, std::ssize(found.pairs));
  for (const auto& [name, ours] : found.pairs) {
    activity.add();
    if (!device::has_memory(ours)) continue;  // part of another unit than the one being filled
    if (!source.packed.contains(name))
      require_finite(source, name, ours.is_floating_point() ? ours.scalar_type() : at::kFloat);
    const auto split = found.splits.find(name);
    const auto fitted = found.fitted.find(name);
    const auto into = found.packed.find(name);
    if (const auto packed = source.packed.find(name); packed != source.packed.end()) {
      into->second->packed().fill(packed->second, file_of(source, name));
      continue;
    }
    const at::Tensor theirs = fitted == found.fitted.end() ? source.tensor(name) : fitted->second;
    if (into != found.packed.end()) {
      into->second->packed().fill(into->second->is_in_out() ? theirs.t() : theirs);
    } else {
      ours.detach().copy_(split == found.splits.end() ? theirs : nn::part_of(split->second, theirs));
    }
    if (is_constant_matrix(into == found.packed.end() ? ours.detach() : theirs)) constant.push_back(name);
  }
  warn_of_constants(source, constant);
}

}  // namespace

TensorSource with_packed(TensorSource source) {
  const std::set<std::string> names(source.names.begin(), source.names.end());
  const nn::FileTensors files{
      .has = [&](const std::string& name) { return names.contains(name); },
      .tensor = source.tensor,
      .where = [&](const std::string& name) { return names.contains(name) ? file_of(source, name) : source.where; }};
  std::set<std::string> beside;
  std::vector<std::unique_ptr<nn::Packing>> packings;
  for (const std::string& kind : nn::packings().names())
    packings.push_back(nn::packings().make(nn::packings().with_defaults(kind)));
  for (const std::string& name : source.names) {
    for (const auto& packing : packings) {
      auto found = packing->find(files, name);
      if (!found) continue;
      beside.insert(found->names_beside.begin(), found->names_beside.end());
      source.packed.emplace(name, std::move(*found));
    }
  }
  std::erase_if(source.names, [&](const std::string& name) { return beside.contains(name); });
  return source;
}

NotLoaded load_weights(Model& model, const TensorSource& source, OtherClasses other_classes) {
  // Adapters are written under the names that the model has without a file.
  if (other_classes == OtherClasses::left_out && branch_tensors(model).empty()) begin_with(model, source);
  const MatchedWeights found = match_weights(model, source, other_classes);
  fill(found, source);
  return found.not_loaded;
}

void load_tensors(const std::map<std::string, at::Tensor>& targets, const TensorSource& source) {
  fill(match_tensors(targets, source), source);
}

std::vector<std::string> settings_of(const PublishedModel& published, const config::Loaded& job,
                                     const std::string& key) {
  std::map<std::string, std::string> values;
  for (const config::Setting& setting : job.settings()) values[setting.key] = setting.value;
  std::vector<std::string> lines;
  std::vector<config::Problem> conflicts;
  const auto is_said = [&](const std::string& dotted) {
    return job.origin(dotted) != "default" && values[dotted] != "null";
  };
  const auto want = [&](const std::string& dotted, const std::string& value) {
    const std::string& mine = values[dotted];
    if (is_said(dotted) && same_value(mine, value)) return;
    if (is_said(dotted)) {
      std::string hint = dotted == key + ".type" ? "write `type: " + value + "`"
                                                 : "remove it: the pretrained folder's config.json sets it";
      if (dotted == key + ".config.block_size") hint += "; data.text.max_length: " + mine + " gives shorter samples";
      const auto error =
          job.error(dotted, "is " + mine + " here and " + value + " in the pretrained model", std::move(hint));
      conflicts.insert(conflicts.end(), error.problems().begin(), error.problems().end());
    }
    lines.push_back(dotted + "=" + value);
  };
  const auto option = [&](const std::string& name) { return key + ".config." + name; };
  want(key + ".type", published.type);
  for (const auto& [name, value] : published.options) want(option(name), value);
  for (const auto& [name, value] : published.quantized) want(key + ".quantize." + name, value);
  for (const auto& [name, value] : published.defaults) {
    if (!is_said(option(name))) lines.push_back(option(name) + "=" + value);
  }
  if (!conflicts.empty()) throw config::SpecError(std::move(conflicts));
  return lines;
}

}  // namespace gputrain::models
