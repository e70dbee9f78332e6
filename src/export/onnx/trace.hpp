// A model as a list of operators, with sizes that grow with samples and tokens.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>

#include "size.hpp"

namespace gputrain::app::onnx {

/// What an operator reads or returns, by its number.
struct Value {
  at::ScalarType type = at::kFloat;
  std::vector<Size> sizes;
  at::Tensor constant = {};  // defined: the same in every pass
};

struct Argument {
  std::string name;
  at::IValue value;           // in the first pass
  std::vector<Size> numbers;  // of a whole number or a list of them
  std::vector<int> values;    // of a tensor or a list of them; -1: there is none
};

struct Call {
  std::string name;  // "linear", of ATen; in-place ones have the names of the others
  std::vector<Argument> arguments;
  std::vector<int> results;
};

struct Trace {
  std::vector<Value> values;
  std::vector<Call> calls;  // what `output` needs, in order
  std::vector<int> inputs;  // -1: the output does not depend on it
  int output = -1;
};

struct TracedModel {
  std::vector<Extent> extents;  // of extents_to_record()
  std::function<std::vector<at::Tensor>(const Extent&)> inputs;
  std::function<at::Tensor(const std::vector<at::Tensor>&)> pass;
};

/// Runs the passes and compares them. Throws Error(usage) where the model does not do the same in all of them, or reads
/// values to decide what to do.
Trace trace_of(const TracedModel& model);

}  // namespace gputrain::app::onnx
