// Model as a list of operators, with sizes that grow with samples and tokens.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>

#include "size.hpp"

namespace gputrain::app::onnx {

/// Input or result of an operator; others refer to it by its number.
struct Value {
  at::ScalarType type = at::kFloat;
  std::vector<Size> sizes;
  at::Tensor constant = {};  // defined: the same in every pass
};

struct Argument {
  std::string name;
  at::IValue value;           // value in the first pass
  std::vector<Size> numbers;  // a whole number or a list of them
  std::vector<int> values;    // numbers of a tensor or of a list of them; -1: there is none
};

struct Call {
  std::string name;  // ATen's name, "linear"; in-place ones have the names of the others
  std::vector<Argument> arguments;
  std::vector<int> results;
};

struct Trace {
  std::vector<Value> values;
  std::vector<Call> calls;  // calls that `output` needs, in order
  std::vector<int> inputs;  // -1: the output does not depend on it
  int output = -1;
};

struct TracedModel {
  std::vector<Extent> extents;  // result of extents_to_record()
  std::function<std::vector<at::Tensor>(const Extent&)> inputs;
  std::function<at::Tensor(const std::vector<at::Tensor>&)> pass;
};

/// Runs the passes and compares them. Throws Error(usage) if the model's operators differ, or depend on values.
Trace trace_of(const TracedModel& model);

}  // namespace gputrain::app::onnx
