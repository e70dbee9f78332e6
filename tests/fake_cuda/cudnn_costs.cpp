#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <string>

#include <cudnn_graph.h>

#include "cudnn_bag.hpp"

namespace gputrain::fake_cuda {
namespace {

std::vector<int64_t> numbers_of(const Bag& bag, int attribute) {
  const auto found = bag.attributes.find(attribute);
  if (found == bag.attributes.end()) return {};
  std::vector<int64_t> numbers(static_cast<size_t>(found->second.first));
  std::memcpy(numbers.data(), found->second.second.data(), numbers.size() * sizeof(int64_t));
  return numbers;
}

const Bag& bag_of(const Bag& bag, int attribute) {
  return *reinterpret_cast<const Bag*>(numbers_of(bag, attribute).at(0));
}

std::vector<int64_t> sizes_of(const Bag& tensor) { return numbers_of(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS); }

double elements_of(const Bag& tensor) {
  const auto sizes = sizes_of(tensor);
  return std::accumulate(sizes.begin(), sizes.end(), 1.0,
                         [](double all, int64_t size) { return all * static_cast<double>(size); });
}

int enumeration_of(const Bag& bag, int attribute) {
  int value = -1;
  if (const auto found = bag.attributes.find(attribute); found != bag.attributes.end())
    std::memcpy(&value, found->second.second.data(), std::min(sizeof(value), found->second.second.size()));
  return value;
}

double bytes_of(const Bag& tensor) {
  const auto virtual_one = tensor.attributes.find(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  if (virtual_one != tensor.attributes.end() && virtual_one->second.second.at(0) != 0) return 0;
  const int type = enumeration_of(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE);
  const bool is_wide = type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_INT32;
  return elements_of(tensor) * (type == CUDNN_DATA_INT64 ? 8 : is_wide ? 4 : 2);
}

/// Of texts beside each other, [texts, heads, time, channels] with an offset for each text; else 0.
double places_of(const Bag& tensor) {
  if (!tensor.attributes.contains(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC)) return 0;
  const auto sizes = sizes_of(tensor);
  return static_cast<double>(sizes.at(0) * sizes.at(2));
}

/// 2 for each product: a filter meets every pixel of the output.
double operations_of_convolution(const Bag& filters, const Bag& out) {
  return 2 * elements_of(out) * elements_of(filters) / static_cast<double>(sizes_of(filters).at(0));
}

double operations_of(const Bag& bag) {
  switch (bag.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return operations_of_convolution(bag_of(bag, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W),
                                       bag_of(bag, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y));
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return operations_of_convolution(bag_of(bag, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W),
                                       bag_of(bag, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY));
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return operations_of_convolution(bag_of(bag, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW),
                                       bag_of(bag, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY));
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: {
      const Bag &a = bag_of(bag, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
                &c = bag_of(bag, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
      return 2 * elements_of(c) * static_cast<double>(sizes_of(a).back());
    }
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR:
      return 4 * elements_of(bag_of(bag, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC)) *
             static_cast<double>(sizes_of(bag_of(bag, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC)).at(2));
    case CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR:
      return 10 * elements_of(bag_of(bag, CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC)) *
             static_cast<double>(sizes_of(bag_of(bag, CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC)).at(2));
    default:
      return 0;
  }
}

/// "cudnn" for convolutions; attention has two products, its gradient five.
std::string kind_of(const std::vector<const Bag*>& bags) {
  const auto count = [&](int type) { return std::ranges::count(bags, type, &Bag::type); };
  const auto products = count(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  if (products > 2 || count(CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR) > 0) return "attention backward";
  return products == 2 || count(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR) > 0 ? "attention" : "cudnn";
}

}  // namespace

Cost cost_of_plan(const Bag& plan) {
  std::vector<const Bag*> bags;
  std::set<const Bag*> met;
  const std::function<void(const Bag&)> visit = [&](const Bag& bag) {
    if (!met.insert(&bag).second) return;
    bags.push_back(&bag);
    for (const Bag* other : bag.others) visit(*other);
  };
  visit(plan);
  Cost cost{.kind = kind_of(bags)};
  std::map<int64_t, double> bytes;  // by the tensor's id
  for (const Bag* bag : bags) {
    cost.operations += operations_of(*bag);
    if (bag->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) cost.places = std::max(cost.places, places_of(*bag));
    if (bag->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      bytes[numbers_of(*bag, CUDNN_ATTR_TENSOR_UNIQUE_ID).at(0)] = bytes_of(*bag);
  }
  for (const auto& [id, of_tensor] : bytes) cost.bytes += of_tensor;
  return cost;
}

}  // namespace gputrain::fake_cuda
