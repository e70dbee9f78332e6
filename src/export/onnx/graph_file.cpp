// File of a graph in the format of ONNX (onnx.proto of version 1.15).
#include <numeric>
#include <optional>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/job/version.hpp"
#include "graph.hpp"
#include "protobuf.hpp"

namespace gputrain::app::onnx {
namespace {

constexpr int64_t kFileVersion = 9, kOperators = 20;  // versions of ONNX 1.15: the first operators with GELU
constexpr int64_t kAlignment = 64;                    // alignment of constants in a file of their own

/// Puts the value of an attribute and the number of its kind.
void put_value(Message& message, float value) {
  message.put(2, value);
  message.put(20, int64_t{1});
}
void put_value(Message& message, int64_t value) {
  message.put(3, value);
  message.put(20, int64_t{2});
}
void put_value(Message& message, const std::string& value) {
  message.put(4, value);
  message.put(20, int64_t{3});
}
void put_value(Message& message, const std::vector<int64_t>& values) {
  for (const int64_t value : values) message.put(8, value);
  message.put(20, int64_t{7});
}

Message message_of(const Attribute& attribute) {
  Message message;
  message.put(1, attribute.name);
  std::visit([&](const auto& value) { put_value(message, value); }, attribute.value);
  return message;
}

Message message_of(const Node& node) {
  Message message;
  for (const std::string& input : node.inputs) message.put(1, input);
  for (const std::string& output : node.outputs) message.put(2, output);
  message.put(3, node.outputs[0]);
  message.put(4, node.type);
  for (const Attribute& attribute : node.attributes) message.put(5, message_of(attribute));
  return message;
}

Message message_of(const Interface& interface) {
  Message shape;
  for (const Size& size : interface.sizes) {
    Message dimension;
    if (size.is_constant()) dimension.put(1, size.constant);
    if (size == Size{.batch = 1}) dimension.put(2, "batch");
    if (size == Size{.length = 1}) dimension.put(2, "length");
    shape.put(1, dimension);
  }
  Message tensor, type, message;
  tensor.put(1, number_of_type(interface.type));
  tensor.put(2, shape);
  type.put(1, tensor);
  message.put(1, interface.name);
  message.put(2, type);
  return message;
}

Message entry(const std::string& key, const std::string& value) {
  Message message;
  message.put(1, key);
  message.put(2, value);
  return message;
}

std::string_view bytes_of(const at::Tensor& contiguous) {
  return {static_cast<const char*>(contiguous.const_data_ptr()), contiguous.nbytes()};
}

/// File for constants that are too large for the model's own.
class DataFile {
 public:
  explicit DataFile(const std::filesystem::path& path)
      : name_(path.filename().string()), file_(path, ExitCode::environment) {}

  /// Appends the values, and notes in `tensor` where they are.
  void append(std::string_view bytes, Message& tensor) {
    const std::string padding(static_cast<size_t>((kAlignment - offset_ % kAlignment) % kAlignment), '\0');
    file_.write(padding);
    offset_ += std::ssize(padding);
    file_.write(bytes);
    tensor.put(13, entry("location", name_));
    tensor.put(13, entry("offset", std::to_string(offset_)));
    tensor.put(13, entry("length", std::to_string(bytes.size())));
    tensor.put(14, int64_t{1});
    offset_ += std::ssize(bytes);
  }
  void commit() { file_.commit(); }

 private:
  std::string name_;
  AtomicFile file_;
  int64_t offset_ = 0;
};

Message message_of(const std::string& name, const at::Tensor& values, std::optional<DataFile>& data) {
  constexpr int64_t kSmall = 1024;  // limit: shape inference only reads numbers in the model's own file
  Message message;
  for (const int64_t size : values.sizes()) message.put(1, size);
  message.put(2, number_of_type(values.scalar_type()));
  message.put(8, name);
  if (data && static_cast<int64_t>(values.nbytes()) > kSmall) {
    data->append(bytes_of(values), message);
  } else {
    message.put(9, bytes_of(values));
  }
  return message;
}

/// Returns the whole file.
Message message_of(const Message& graph, const std::map<std::string, std::string>& metadata) {
  Message operators, model;
  operators.put(1, "");
  operators.put(2, kOperators);
  model.put(1, kFileVersion);
  model.put(2, "gputrain");
  model.put(3, version());
  model.put(7, graph);
  model.put(8, operators);
  for (const auto& [key, value] : metadata) model.put(14, entry(key, value));
  return model;
}

}  // namespace

int64_t number_of_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return 1;
    case at::kInt:
      return 6;
    case at::kLong:
      return 7;
    case at::kBool:
      return 9;
    case at::kDouble:
      return 11;
    default:
      throw Error(ExitCode::usage, {.what = std::string("values of type ") + c10::toString(type) + " are not written",
                                    .where = "--format onnx"});
  }
}

void Graph::write(const std::filesystem::path& file, const Options& options) const {
  const int64_t bytes = std::accumulate(
      constants_.begin(), constants_.end(), int64_t{0},
      [](int64_t sum, const auto& constant) { return sum + static_cast<int64_t>(constant.second.nbytes()); });
  std::optional<DataFile> data;
  if (bytes > options.most_bytes) data.emplace(file.string() + ".data");
  Message graph;
  for (const Node& node : nodes_) graph.put(1, message_of(node));
  graph.put(2, "model");
  for (const auto& [name, tensor] : constants_) graph.put(5, message_of(name, tensor.contiguous(), data));
  for (const Interface& input : inputs_)
    if (is_read(input.name)) graph.put(11, message_of(input));
  for (const Interface& output : outputs_) graph.put(12, message_of(output));
  const Message model = message_of(graph, options.metadata);
  if (data) data->commit();
  AtomicFile out(file, ExitCode::environment);
  out.write(model.bytes());
  out.commit();
}

}  // namespace gputrain::app::onnx
