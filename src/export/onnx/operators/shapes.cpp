// Operators that choose, join or rearrange elements.
#include <algorithm>
#include <limits>
#include <numeric>

#include "../translation.hpp"

namespace gputrain::app::onnx {
namespace {

/// Returns the shape of the result as int64 [dims]. Reshape has numbers for dimensions that do not change (0) and for
/// one that follows from the others (-1).
std::string reshaped_shape(Translation& t) {
  const std::vector<Size>&from = t.value("self").sizes, &to = t.result().sizes;
  std::vector<int64_t> numbers;
  bool has_rest = false;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].is_constant()) {
      numbers.push_back(to[i].constant);
    } else if (i < from.size() && from[i] == to[i]) {
      numbers.push_back(0);
    } else if (!has_rest) {
      numbers.push_back(-1);
      has_rest = true;
    } else {
      return t.graph.shape(to);
    }
  }
  return t.graph.numbers(numbers);
}

void reshape(Translation& t) {
  const bool is_same = t.value("self").sizes == t.result().sizes;
  t.give(is_same ? t.tensor("self") : t.graph.add("Reshape", {t.tensor("self"), reshaped_shape(t)}));
}

void permuted(Translation& t, const std::vector<int64_t>& order) {
  t.give(t.graph.add("Transpose", {t.tensor("self")}, {{"perm", order}}));
}

void permute(Translation& t) {
  std::vector<int64_t> order = t.integers("dims");
  for (int64_t& dim : order)
    if (dim < 0) dim += std::ssize(order);
  permuted(t, order);
}

void swap_dims(Translation& t, int64_t one, int64_t other) {
  std::vector<int64_t> order(t.value("self").sizes.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::swap(order[static_cast<size_t>(one)], order[static_cast<size_t>(other)]);
  permuted(t, order);
}

void transpose(Translation& t) { swap_dims(t, t.dim("dim0"), t.dim("dim1")); }

void transpose_matrix(Translation& t) { swap_dims(t, 0, 1); }

void expand(Translation& t) { t.give(t.graph.add("Expand", {t.tensor("self"), t.graph.shape(t.result().sizes)})); }

std::string slice(Translation& t, int64_t dim, const Size& begin, const Size& end, int64_t step = 1) {
  return t.graph.add("Slice", {t.tensor("self"), t.graph.size(begin), t.graph.size(end), t.graph.numbers({dim}),
                               t.graph.numbers({step})});
}

void narrow(Translation& t) {
  const int64_t dim = t.dim("dim");
  if (t.result().sizes == t.value("self").sizes) return t.give(t.tensor("self"));
  const Size begin = t.size("start"), count = t.size("length");
  const Size end{.constant = begin.constant + count.constant,
                 .batch = begin.batch + count.batch,
                 .length = begin.length + count.length,
                 .both = begin.both + count.both};
  t.give(slice(t, dim, begin, end));
}

void slice_dim(Translation& t) {
  const Size begin = t.has("start") ? t.size("start") : Size();
  const Size end = t.has("end") ? t.size("end") : Size{.constant = std::numeric_limits<int64_t>::max()};
  t.give(slice(t, t.dim("dim"), begin, end, t.integer("step")));
}

void select(Translation& t) {
  const std::string place = t.graph.add("Squeeze", {t.graph.size(t.size("index"))});
  t.give(t.graph.add("Gather", {t.tensor("self"), place}, {{"axis", t.dim("dim")}}));
}

void split(Translation& t) {
  const int64_t dim = t.dim("dim");
  std::vector<Size> sizes;
  for (size_t i = 0; i < t.results(); ++i) sizes.push_back(t.result(i).sizes[static_cast<size_t>(dim)]);
  const auto parts = t.graph.add("Split", {t.tensor("self"), t.graph.shape(sizes)}, {{"axis", dim}}, t.results());
  for (size_t i = 0; i < parts.size(); ++i) t.give(parts[i], i);
}

/// Translates a padding: ATen pads the last dimension first; ONNX has the begins of all dimensions, then the ends.
void pad(Translation& t) {
  const std::vector<int64_t> given = t.integers("pad");
  const size_t dims = t.result().sizes.size();
  std::vector<int64_t> pads(2 * dims, 0);
  for (size_t i = 0; i < given.size(); ++i) pads[dims - 1 - i / 2 + i % 2 * dims] = given[i];
  t.give(t.graph.add("Pad", {t.tensor("self"), t.graph.numbers(pads), t.operand("value", t.result().type)}));
}

void join(Translation& t) {
  int64_t dim = t.integer("dim");
  if (dim < 0) dim += std::ssize(t.result().sizes);
  t.give(t.graph.add("Concat", t.tensors("tensors"), {{"axis", dim}}));
}

void index_select(Translation& t) {
  t.give(t.graph.add("Gather", {t.tensor("self"), t.tensor("index")}, {{"axis", t.dim("dim")}}));
}

void gather(Translation& t) {
  t.give(t.graph.add("GatherElements", {t.tensor("self"), t.tensor("index")}, {{"axis", t.dim("dim")}}));
}

void scatter(Translation& t) {
  if (!t.has("src")) t.refuse("of one number");
  t.give(
      t.graph.add("ScatterElements", {t.tensor("self"), t.tensor("index"), t.tensor("src")}, {{"axis", t.dim("dim")}}));
}

void top(Translation& t) {
  const auto found = t.graph.add(
      "TopK", {t.tensor("self"), t.graph.size(t.size("k"))},
      {{"axis", t.dim("dim")}, {"largest", int64_t{t.flag("largest")}}, {"sorted", int64_t{t.flag("sorted")}}}, 2);
  t.give(found[0], 0);
  t.give(found[1], 1);
}

void range(Translation& t) {
  const at::ScalarType type = t.result().type;
  const std::string begin = t.has("start") ? t.operand("start", type) : t.graph.number(0, type);
  const std::string step = t.has("step") ? t.operand("step", type) : t.graph.number(1, type);
  t.give(t.graph.add("Range", {begin, t.operand("end", type), step}));
}

void filled(Translation& t, double value) {
  t.give(t.graph.add("Expand", {t.graph.number(value, t.result().type), t.graph.shape(t.result().sizes)}));
}

void zeros(Translation& t) { filled(t, 0); }

void ones(Translation& t) { filled(t, 1); }

void full(Translation& t) {
  t.give(t.graph.add("Expand", {t.operand("fill_value", t.result().type), t.graph.shape(t.result().sizes)}));
}

const Operators shapes{
    {"_unsafe_view", reshape},
    {"arange", range},
    {"cat", join},
    {"chunk", split},
    {"constant_pad_nd", pad},
    {"expand", expand},
    {"flatten", reshape},
    {"full", full},
    {"gather", gather},
    {"index_select", index_select},
    {"narrow", narrow},
    {"ones", ones},
    {"permute", permute},
    {"reshape", reshape},
    {"scatter", scatter},
    {"select", select},
    {"slice", slice_dim},
    {"split", split},
    {"split_with_sizes", split},
    {"squeeze", reshape},
    {"t", transpose_matrix},
    {"topk", top},
    {"transpose", transpose},
    {"unsqueeze", reshape},
    {"view", reshape},
    {"view_as", reshape},
    {"zeros", zeros},
    {"zeros_like", zeros},
};

}  // namespace
}  // namespace gputrain::app::onnx
