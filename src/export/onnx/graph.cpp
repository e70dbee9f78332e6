#include "graph.hpp"

#include <algorithm>
#include <bit>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "gputrain/core/error.hpp"

namespace gputrain::app::onnx {
namespace {

std::string text_of(const Attribute& attribute) {
  std::string text = attribute.name + "=";
  if (const auto* whole = std::get_if<int64_t>(&attribute.value)) text += std::to_string(*whole);
  if (const auto* real = std::get_if<float>(&attribute.value)) text += std::to_string(std::bit_cast<uint32_t>(*real));
  if (const auto* words = std::get_if<std::string>(&attribute.value)) text += *words;
  if (const auto* list = std::get_if<std::vector<int64_t>>(&attribute.value))
    for (const int64_t one : *list) text += std::to_string(one) + " ";
  return text;
}

/// Describes the computation of a node.
std::string text_of(const std::string& type, const std::vector<std::string>& inputs,
                    const std::vector<Attribute>& attributes, size_t outputs) {
  std::string text = type + "\n" + std::to_string(outputs);
  for (const std::string& input : inputs) text += "\n" + input;
  for (const Attribute& attribute : attributes) text += "\n" + text_of(attribute);
  return text;
}

/// Describes type, sizes, and the place of the values.
std::string place_of(const at::Tensor& tensor) {
  std::string text = c10::toString(tensor.scalar_type());
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    text += " " + std::to_string(tensor.size(dim)) + "/" + std::to_string(tensor.stride(dim));
  return text + " at " + std::to_string(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()));
}

/// Describes a tensor by its place, or by its values if they are few and made for the graph.
std::string text_of(const at::Tensor& tensor) {
  constexpr int64_t kFew = 8;
  if (tensor.numel() > kFew || tensor.dim() > 1 || !tensor.is_contiguous()) return place_of(tensor);
  return std::string(c10::toString(tensor.scalar_type())) + std::to_string(tensor.dim()) + " of " +
         std::string(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
}

}  // namespace

Graph::Graph(const std::vector<std::pair<std::string, at::Tensor>>& named) {
  for (const auto& [name, tensor] : named) names_.emplace(place_of(tensor), name);
}

std::vector<std::string> Graph::add(const std::string& type, std::vector<std::string> inputs,
                                    std::vector<Attribute> attributes, size_t outputs) {
  const auto [known, is_new] = known_nodes_.try_emplace(text_of(type, inputs, attributes, outputs));
  if (!is_new) return known->second;
  const std::string name = new_name(type);
  for (size_t i = 0; i < outputs; ++i) known->second.push_back(outputs == 1 ? name : name + "." + std::to_string(i));
  nodes_.push_back(
      {.type = type, .inputs = std::move(inputs), .outputs = known->second, .attributes = std::move(attributes)});
  return known->second;
}

std::string Graph::constant(const at::Tensor& tensor) {
  const auto named = names_.find(place_of(tensor));
  const auto [known, is_new] = known_constants_.try_emplace(named != names_.end() ? named->first : text_of(tensor));
  if (!is_new) return known->second;
  known->second = named != names_.end() ? named->second : new_name("constant");
  constants_.emplace_back(known->second, tensor);
  return known->second;
}

std::string Graph::numbers(const std::vector<int64_t>& values) { return constant(at::tensor(values, at::kLong)); }

std::string Graph::number(double value, at::ScalarType type) {
  return constant(at::full({}, value, at::TensorOptions().dtype(type)));
}

std::string Graph::size(const Size& size) {
  if (size.is_constant()) return numbers({size.constant});
  const auto dimension = [&](int64_t dim) {
    return add("Shape", {inputs_.at(0).name}, {{"start", dim}, {"end", dim + 1}});
  };
  std::string sum;
  const auto add_part = [&](int64_t factor, const std::string& part) {
    const std::string product = factor == 1 ? part : add("Mul", {part, numbers({factor})});
    sum = sum.empty() ? product : add("Add", {sum, product});
  };
  if (size.batch != 0) add_part(size.batch, dimension(0));
  if (size.length != 0) add_part(size.length, dimension(1));
  if (size.both != 0) add_part(size.both, add("Mul", {dimension(0), dimension(1)}));
  return size.constant == 0 ? sum : add("Add", {sum, numbers({size.constant})});
}

std::string Graph::shape(const std::vector<Size>& sizes) {
  std::vector<int64_t> constants;
  for (const Size& one : sizes)
    if (one.is_constant()) constants.push_back(one.constant);
  if (constants.size() == sizes.size()) return numbers(constants);
  std::vector<std::string> parts;
  for (const Size& one : sizes) parts.push_back(size(one));
  return parts.size() == 1 ? parts[0] : add("Concat", parts, {{"axis", int64_t{0}}});
}

bool Graph::is_read(const std::string& name) const {
  return std::ranges::any_of(
      nodes_, [&](const Node& node) { return std::ranges::find(node.inputs, name) != node.inputs.end(); });
}

void Graph::set_output(const std::string& name, Interface output) {
  const auto rename = [&](std::string& one) {
    if (one == name) one = output.name;
  };
  const bool is_computed = std::ranges::any_of(
      nodes_, [&](const Node& node) { return std::ranges::find(node.outputs, name) != node.outputs.end(); });
  GPUTRAIN_ASSERT(is_computed, "the output is computed from the inputs");
  for (Node& node : nodes_) {
    std::ranges::for_each(node.inputs, rename);
    std::ranges::for_each(node.outputs, rename);
  }
  outputs_.push_back(std::move(output));
}

}  // namespace gputrain::app::onnx
