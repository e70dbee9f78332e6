#include "gputrain/inspect/tensor_difference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <ATen/Dispatch_v2.h>

#include "gputrain/core/error.hpp"

namespace gputrain::app {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kBlockElements = 4096;  // size of blocks that are skipped if equal

template <class T>
double distance(T a, T b) {
  if constexpr (std::is_integral_v<T>) {  // in integers: a double cannot distinguish neighbours above 2^53
    return static_cast<double>(static_cast<uint64_t>(std::max(a, b)) - static_cast<uint64_t>(std::min(a, b)));
  } else {
    const auto x = static_cast<double>(a), y = static_cast<double>(b);
    if (std::isnan(x) && std::isnan(y)) return 0;
    const double between = std::abs(x - y);
    return std::isnan(between) ? kInfinity : between;
  }
}

template <class T>
double relative(double distance, T a, T b) {
  if (distance == 0 || std::isinf(distance)) return distance;
  return distance / std::max(std::abs(static_cast<double>(a)), std::abs(static_cast<double>(b)));
}

template <class T>
TensorDifference compare_elements(const T* a, const T* b, int64_t count) {
  TensorDifference total{.elements = count};
  for (int64_t begin = 0; begin < count; begin += kBlockElements) {
    const int64_t end = std::min(count, begin + kBlockElements);
    if (std::memcmp(a + begin, b + begin, static_cast<size_t>(end - begin) * sizeof(T)) == 0) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (std::memcmp(a + i, b + i, sizeof(T)) == 0) continue;
      const double between = distance(a[i], b[i]);
      total.add({.differing = 1, .largest_absolute = between, .largest_relative = relative(between, a[i], b[i])});
    }
  }
  return total;
}

}  // namespace

void TensorDifference::add(const TensorDifference& other) {
  elements += other.elements;
  differing += other.differing;
  largest_absolute = std::max(largest_absolute, other.largest_absolute);
  largest_relative = std::max(largest_relative, other.largest_relative);
}

TensorDifference difference_between(const at::Tensor& a, const at::Tensor& b) {
  GPUTRAIN_ASSERT(a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes(), "only tensors of one kind compare");
  return AT_DISPATCH_V2(
      a.scalar_type(), "difference_between",
      AT_WRAP([&] { return compare_elements(a.const_data_ptr<scalar_t>(), b.const_data_ptr<scalar_t>(), a.numel()); }),
      AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), AT_EXPAND(AT_FLOAT8_TYPES), at::kBool, at::kHalf,
      at::kBFloat16);
}

}  // namespace gputrain::app
