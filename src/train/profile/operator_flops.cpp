#include "operator_flops.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <string_view>

namespace gputrain::train {
namespace {

using Sizes = std::vector<int64_t>;

double product(Sizes::const_iterator begin, Sizes::const_iterator end) {
  return std::accumulate(begin, end, 1.0, [](double all, int64_t size) { return all * static_cast<double>(size); });
}
double product(const Sizes& sizes) { return product(sizes.begin(), sizes.end()); }

/// Counts [..., m, k] times [..., k, n].
double matrix_product(const Shapes& shapes, size_t first) {
  if (shapes.size() < first + 2 || shapes[first].size() < 2 || shapes[first + 1].empty()) return 0;
  return 2 * product(shapes[first]) * static_cast<double>(shapes[first + 1].back());
}

/// Counts a dense layer: input [..., in], weight [out, in].
double dense_layer(const Shapes& shapes) {
  if (shapes.size() < 2 || shapes[0].empty() || shapes[1].size() != 2) return 0;
  return 2 * product(shapes[0]) * static_cast<double>(shapes[1][0]);
}

/// Returns the number of products in one output element of a convolution: the product of [out, in / groups, height,
/// width] without the first.
double products_per_output(const Sizes& weight) {
  return weight.size() < 3 ? 0 : product(weight.begin() + 1, weight.end());
}

/// Counts output elements, from input [batch, channels, sizes...], weight, and lists stride, padding and dilation.
double convolved_elements(const Sizes& input, const Sizes& weight, const Shapes& lists) {
  if (input.size() != weight.size() || input.size() < 3 || lists.size() < 3) return 0;
  double elements = static_cast<double>(input[0]) * static_cast<double>(weight[0]);
  for (size_t dim = 0; dim + 2 < input.size(); ++dim) {
    const auto at = [dim](const Sizes& list) { return list.size() == 1 ? list[0] : list.size() > dim ? list[dim] : 1; };
    const int64_t reach = at(lists[2]) * (weight[dim + 2] - 1) + 1, stride = std::max<int64_t>(1, at(lists[0]));
    const int64_t size = (input[dim + 2] + 2 * at(lists[1]) - reach) / stride + 1;
    elements *= static_cast<double>(std::max<int64_t>(0, size));
  }
  return elements;
}

double convolution(const Shapes& shapes, const Shapes& lists) {
  if (shapes.size() < 2) return 0;
  return 2 * convolved_elements(shapes[0], shapes[1], lists) * products_per_output(shapes[1]);
}

/// Inputs: gradient of the output, input, weight. One product for the gradient of the input, one for the weight's.
double convolution_backward(const Shapes& shapes) {
  if (shapes.size() < 3 || shapes[0].empty()) return 0;
  return 4 * product(shapes[0]) * products_per_output(shapes[2]);
}

/// Queries [batch, heads, time, channels] and keys [batch, heads, keys, channels]: two products of [time, keys].
double attention(const Shapes& shapes, size_t first) {
  if (shapes.size() < first + 2 || shapes[first].size() != 4 || shapes[first + 1].size() != 4) return 0;
  return 4 * product(shapes[first]) * static_cast<double>(shapes[first + 1][2]);
}

}  // namespace

double flops_of(const std::string& op, const Shapes& shapes, const Shapes& lists) {
  if (op == "mkldnn::_linear_pointwise") return dense_layer(shapes);
  if (!op.starts_with("aten::")) return 0;
  const std::string_view name = std::string_view(op).substr(6);
  if (name == "mm" || name == "bmm") return matrix_product(shapes, 0);
  if (name == "addmm" || name == "baddbmm" || name == "_addmm_activation") return matrix_product(shapes, 1);
  if (name == "convolution") return convolution(shapes, lists);
  if (name == "convolution_backward") return convolution_backward(shapes);
  if (!name.starts_with("_scaled_dot_product_") || name.find("attention") == std::string_view::npos) return 0;
  return name.ends_with("_backward") ? 2 * attention(shapes, 1) : attention(shapes, 0);
}

}  // namespace gputrain::train
