// What tests of CUDA kernels on the CPU share: tensors in a storage type, poisoned outputs, bounds of error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "../../../src/ops/cuda/kernels/kernels.hpp"

namespace gputrain::testing_support {

struct Storage {
  const char* name;
  at::ScalarType type;
  ops::cuda::Element element;
};
const std::vector<Storage>&
storages();  // fp32, bf16, fp16; ThreadSanitizer, for which each is a program alike, gets fp32

/// Where kernels run: the CPU, but for the tests that are for a GPU.
at::Device kernel_device();
bool has_kernel_device();

/// Normal values, rounded to the type.
at::Tensor noise(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type);

/// Filled with NaN (integers: with a number that nobody writes), so that what a kernel leaves out is seen.
at::Tensor poisoned(at::IntArrayRef sizes, at::ScalarType type);

at::Tensor wide(const at::Tensor& tensor);       // a copy in double
at::Tensor wide_leaf(const at::Tensor& tensor);  // that requires grad

/// That `ours` is whole and right: ||ours - expected|| / ||expected|| is at most 1e-5 for fp32, 3e-3 for 16 bits.
/// `floor` is added to the norm below, for what cancels to almost nothing.
void expect_close(const at::Tensor& ours, const at::Tensor& expected, const std::string& what, double floor = 0);
/// The same against a bound of one's own.
void expect_within(double bound, const at::Tensor& ours, const at::Tensor& expected, const std::string& what);

/// That both are equal bit for bit.
void expect_same_bits(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other);

template <class T = void>
T* pointer(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

}  // namespace gputrain::testing_support
