// Translation of ATen's operators to those of ONNX. Each has a function in operators/.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "graph.hpp"
#include "trace.hpp"

namespace gputrain::app::onnx {

/// Call that is being translated: inputs by the names of ATen's arguments, and results.
class Translation {
 public:
  Translation(const Trace& trace, const Call& call, Graph& into, std::vector<std::string>& names)
      : graph(into), trace_(trace), call_(call), names_(names) {}

  Graph& graph;

  bool has(const char* argument) const;  // false for None
  bool is_tensor(const char* argument) const;
  /// Returns the name of a tensor in the graph; empty: there is none.
  std::string tensor(const char* argument);
  std::vector<std::string> tensors(const char* argument);
  const Value& value(const char* argument) const;
  /// Returns a tensor, or a number as one, in this type.
  std::string operand(const char* argument, at::ScalarType type);

  /// Return numbers that are the same for any number of samples and tokens. Throw Error(usage) if they are not.
  int64_t integer(const char* argument) const;
  std::vector<int64_t> integers(const char* argument) const;
  /// Returns a number for each of `count` dimensions. ATen gives one for all of them, or none, which is `missing`.
  std::vector<int64_t> integers(const char* argument, size_t count, int64_t missing) const;
  double real(const char* argument) const;
  bool flag(const char* argument) const;
  std::string text(const char* argument) const;
  Size size(const char* argument) const;
  /// Returns a dimension of the tensor `self`, counted from its first one.
  int64_t dim(const char* argument) const;

  size_t results() const { return call_.results.size(); }
  const Value& result(size_t i = 0) const { return trace_.values[static_cast<size_t>(call_.results[i])]; }
  void give(std::string name, size_t i = 0) { names_[static_cast<size_t>(call_.results[i])] = std::move(name); }

  std::string cast(const std::string& name, at::ScalarType from, at::ScalarType to);
  /// Throws Error(usage): the call is one that we do not translate.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const Argument& argument(const char* name) const;
  std::string name_of(int value);

  const Trace& trace_;
  const Call& call_;
  std::vector<std::string>& names_;  // names in the graph, by value of the trace
};

using Translator = void (*)(Translation&);

/// Registers functions of operators by their names in ATen, without "aten::".
struct Operators {
  Operators(std::initializer_list<std::pair<const char*, Translator>> operators);
};

/// Fills the graph with the operators of the trace and gives its inputs and its output these names. Throws Error(usage)
/// that names an operator without a function.
void translate(const Trace& trace, const std::vector<std::string>& inputs, const std::string& output, Graph& graph);

}  // namespace gputrain::app::onnx
