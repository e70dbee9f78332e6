// Record of ATen's operators in a forward pass.
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
  std::vector<at::IValue> inputs, outputs;  // values that keep tensors alive, so that no later one has an earlier one's
                                            // address
  std::vector<uint32_t> output_versions;    // versions of the tensors among the outputs, after the call
};

/// Records the operators that `pass` calls on this thread, without those that these call themselves. Throws an internal
/// error if a tensor is read after it was overwritten through another one with the same memory.
std::vector<RecordedCall> record(const std::function<void()>& pass);

/// Returns the tensors of a value: a tensor or a list; undefined if one of a list is missing. Empty: it has none.
std::vector<at::Tensor> tensors_in(const at::IValue& value);

}  // namespace gputrain::app::onnx
