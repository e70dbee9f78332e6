// Device access for the functions that launch kernels. Tests replace it by a CPU version.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "../kernels/kernels.hpp"

namespace gputrain::ops::cuda {

bool runs_kernels(const at::Tensor& tensor);  // it is on the device
Stream current_stream();
int multiprocessors();
int major_capability();  // of the GPU: 9 on an H100
/// Call after launches: throws if one was refused.
void check_launches();

/// Returns random bits for one call, advancing the device's generator. Draws none for a share of 0.
Dropout drawn_dropout(double share);

double milliseconds(const std::function<void()>& work);
bool can_measure();                    // false during graph capture
const std::string& machine();          // GPU and versions: choices of other machines do not count
std::filesystem::path choices_file();  // empty: choices are not stored

Element element_of(const at::Tensor& tensor);  // for a type that kernels store
bool is_stored(const at::Tensor& tensor);      // whether kernels store its type

template <class T = void>
const T* read(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <class T = void>
T* write(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

/// Returns the address of a tensor. cuDNN's graphs take non-const addresses, also of inputs.
inline void* address_of(const at::Tensor& tensor) { return const_cast<void*>(tensor.const_data_ptr()); }

}  // namespace gputrain::ops::cuda
