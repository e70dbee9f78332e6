// Records which operators of ATen a forward pass calls.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>

namespace gputrain::app::onnx {

struct RecordedCall {
  std::string name;  // "aten::linear"
  std::vector<std::string> argument_names;
  std::vector<at::IValue> inputs, outputs;  // holds tensors, so that none takes the address of an earlier one
  std::vector<uint32_t> output_versions;    // of the tensors among the outputs, after the call
};

/// The operators that `pass` calls on this thread, without those that these call themselves. Throws an internal error
/// if a tensor is read after it was written over through another one with the same memory.
std::vector<RecordedCall> record(const std::function<void()>& pass);

/// The tensors of a value: a tensor or a list; undefined where one of a list is missing. Empty: it has none.
std::vector<at::Tensor> tensors_in(const at::IValue& value);

}  // namespace gputrain::app::onnx
