// Graph of ONNX operators, and the file that it is written to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "size.hpp"

namespace gputrain::app::onnx {

struct Attribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>> value;
};

struct Node {
  std::string type;  // "MatMul"
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> attributes;
};

/// Tensor that is an input or an output of the graph.
struct Interface {
  std::string name;
  at::ScalarType type;
  std::vector<Size> sizes;
};

/// Returns ONNX's number for a type. Throws Error(usage) for a type that we do not write.
int64_t number_of_type(at::ScalarType type);

class Graph {
 public:
  /// Starts empty. `named` tensors keep their names if they become constants of the graph.
  explicit Graph(const std::vector<std::pair<std::string, at::Tensor>>& named);

  /// Adds a node and returns the names of its outputs. Nodes with the same computation are merged.
  std::vector<std::string> add(const std::string& type, std::vector<std::string> inputs,
                               std::vector<Attribute> attributes, size_t outputs);
  /// Adds a node with a single output. An input without a name is left out.
  std::string add(const std::string& type, std::vector<std::string> inputs, std::vector<Attribute> attributes = {}) {
    return add(type, std::move(inputs), std::move(attributes), 1)[0];
  }

  /// Returns the name of a constant; equal views of one tensor are one constant.
  std::string constant(const at::Tensor& tensor);
  std::string numbers(const std::vector<int64_t>& values);  // int64 [values]
  std::string number(double value, at::ScalarType type);    // []

  /// Returns a number as int64 [1], computed from the sizes of the first input if it depends on them.
  std::string size(const Size& size);
  /// Returns a shape as int64 [sizes].
  std::string shape(const std::vector<Size>& sizes);

  /// Adds an input whose first dimension is samples and whose second one, if any, is tokens. An input that no node
  /// reads is left out of the file.
  void add_input(Interface input) { inputs_.push_back(std::move(input)); }
  /// Gives the tensor `name` the output's name.
  void set_output(const std::string& name, Interface output);

  struct Options {
    std::map<std::string, std::string> metadata;
    int64_t most_bytes = 0;  // limit for constants in the file; more of them get a file of their own
  };
  /// Writes the file and, if constants are too large, FILE.data beside it. Both or the second replace what is there.
  void write(const std::filesystem::path& file, const Options& options) const;

 private:
  bool is_read(const std::string& name) const;
  std::string new_name(const std::string& type) { return type + "_" + std::to_string(counts_[type]++); }

  std::map<std::string, std::string> names_;  // key: place of a tensor in memory
  std::map<std::string, int> counts_;
  std::vector<Node> nodes_;
  std::map<std::string, std::vector<std::string>> known_nodes_;  // outputs by the node's computation
  std::vector<std::pair<std::string, at::Tensor>> constants_;    // in order of their first use
  std::map<std::string, std::string> known_constants_;           // names by place in memory, or by value
  std::vector<Interface> inputs_, outputs_;
};

}  // namespace gputrain::app::onnx
