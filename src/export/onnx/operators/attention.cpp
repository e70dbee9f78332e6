// Attention as products and a softmax.
#include <cmath>
#include <limits>

#include "../translation.hpp"

namespace gputrain::app::onnx {
namespace {

/// Repeats keys or values [batch, key heads, time, channels] for each head: neighbouring heads have the same one.
std::string for_each_head(Translation& t, const std::string& keys, const Value& value) {
  const int64_t key_heads = value.sizes[1].constant, heads = t.value("query").sizes[1].constant;
  if (key_heads == heads) return keys;
  Graph& graph = t.graph;
  const std::string apart = graph.add("Unsqueeze", {keys, graph.numbers({2})});
  const std::string repeated = graph.add("Expand", {apart, graph.numbers({1, 1, heads / key_heads, 1, 1})});
  // The second and third dimension of [batch, key heads, heads of each, time, channels] become one.
  return graph.add("Reshape",
                   {repeated, graph.shape({value.sizes[0], {.constant = heads}, value.sizes[2], value.sizes[3]})});
}

/// Returns bool [queries, keys]: the keys that each query sees, up to its own position.
std::string earlier_keys(Translation& t) {
  Graph& graph = t.graph;
  const auto places = [&](const Size& count) {
    const auto whole = [&](double value) { return graph.number(value, at::kLong); };
    return graph.add("Range", {whole(0), graph.add("Squeeze", {graph.size(count)}), whole(1)});
  };
  const std::string queries = graph.add("Unsqueeze", {places(t.value("query").sizes[2]), graph.numbers({1})});
  return graph.add("GreaterOrEqual", {queries, places(t.value("key").sizes[2])});
}

void attention(Translation& t) {
  const Value& query = t.value("query");
  if (query.sizes.size() != 4 || t.real("dropout_p") != 0) t.refuse("of this kind");
  Graph& graph = t.graph;
  const double scale = t.has("scale") ? t.real("scale") : 1 / std::sqrt(static_cast<double>(query.sizes[3].constant));
  const std::string scaled = graph.add("Mul", {t.tensor("query"), graph.number(scale, query.type)});
  const std::string keys = graph.add("Transpose", {for_each_head(t, t.tensor("key"), t.value("key"))},
                                     {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  std::string scores = graph.add("MatMul", {scaled, keys});
  const auto hide = [&](const std::string& visible) {
    // Not infinity, which would become NaN in a runtime that adds it to itself.
    return graph.add("Where", {visible, scores, graph.number(std::numeric_limits<float>::lowest(), query.type)});
  };
  if (t.flag("is_causal")) scores = hide(earlier_keys(t));
  if (t.has("attn_mask") && t.value("attn_mask").type == at::kBool) {
    scores = hide(t.tensor("attn_mask"));
  } else if (t.has("attn_mask")) {
    scores = graph.add("Add", {scores, t.tensor("attn_mask")});
  }
  const std::string weights = graph.add("Softmax", {scores}, {{"axis", int64_t{-1}}});
  t.give(graph.add("MatMul", {weights, for_each_head(t, t.tensor("value"), t.value("value"))}));
}

const Operators attentions{{"scaled_dot_product_attention", attention}};

}  // namespace
}  // namespace gputrain::app::onnx
