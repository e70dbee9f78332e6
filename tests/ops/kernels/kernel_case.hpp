// Shared by the tests of CUDA kernels on the CPU: tensors in a storage type, poisoned outputs, error bounds.
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
storages();  // fp32, bf16, fp16; under ThreadSanitizer only fp32, because the types run the same code

/// Where kernels run: the CPU, except in the tests for a GPU.
at::Device kernel_device();
bool has_kernel_device();

/// Normal values, rounded to the type.
at::Tensor noise(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type);

/// Filled with NaN (integers: with a value that nothing writes), so that elements a kernel leaves out are detected.
at::Tensor poisoned(at::IntArrayRef sizes, at::ScalarType type);

at::Tensor wide(const at::Tensor& tensor);       // a copy in double
at::Tensor wide_leaf(const at::Tensor& tensor);  // a copy in double that requires grad

/// Checks that `ours` is complete and correct: ||ours - expected|| / ||expected|| is at most 1e-5 for fp32, 3e-3 for 16
/// bits. `floor` is added to the denominator, for values that cancel to nearly zero.
void expect_close(const at::Tensor& ours, const at::Tensor& expected, const std::string& what, double floor = 0);
/// The same with a given bound.
void expect_within(double bound, const at::Tensor& ours, const at::Tensor& expected, const std::string& what);

/// Checks that both are equal bit by bit.
void expect_same_bits(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other);

template <class T = void>
T* pointer(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

}  // namespace gputrain::testing_support
