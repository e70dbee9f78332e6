// Where kernels run: what the functions that launch them ask of the device. The tests answer for a CPU.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "../kernels/kernels.hpp"

namespace gputrain::ops::cuda {

bool runs_kernels(const at::Tensor& tensor);  // it lies on the device
Stream current_stream();
int multiprocessors();
/// After launches: throws when one was refused.
void check_launches();

/// Random bits for one call, which the device's generator gives to none after it; of a share of 0 none are drawn.
Dropout drawn_dropout(double share);

double milliseconds(const std::function<void()>& work);
bool can_measure();                    // not while a graph is captured
const std::string& machine();          // GPU and versions: what was found on another does not count
std::filesystem::path choices_file();  // empty: nothing that was found is kept

Element element_of(const at::Tensor& tensor);  // of a type that kernels store
bool is_stored(const at::Tensor& tensor);      // whether it is of such a type

template <class T = void>
const T* read(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <class T = void>
T* write(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

/// As cuDNN's graphs take tensors, whether they read or write them.
inline void* address_of(const at::Tensor& tensor) { return const_cast<void*>(tensor.const_data_ptr()); }

}  // namespace gputrain::ops::cuda
