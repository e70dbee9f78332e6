// File of a graph in the format of ONNX (onnx.proto of version 1.15).
#include <numeric>
#include <optional>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/protobuf.hpp"
#include "gputrain/job/version.hpp"
#include "graph.hpp"

namespace gputrain::app::onnx {
namespace {

using protobuf::Message;

constexpr int64_t kFileVersion = 9, kOperators = 20;  // versions of ONNX 1.15: the first operators with GELU
constexpr int64_t kAlignment = 64;                    // alignment of constants in a file of their own

/// Puts the value of an attribute and the number of its kind.
void put_value(Message& message, float value) { message.single(2, value).integer(20, 1); }
void put_value(Message& message, int64_t value) { message.integer(3, value).integer(20, 2); }
void put_value(Message& message, const std::string& value) { message.bytes(4, value).integer(20, 3); }
void put_value(Message& message, const std::vector<int64_t>& values) {
  for (const int64_t value : values) message.integer(8, value);
  message.integer(20, 7);
}

Message message_of(const Attribute& attribute) {
  Message message;
  message.bytes(1, attribute.name);
  std::visit([&](const auto& value) { put_value(message, value); }, attribute.value);
  return message;
}

Message message_of(const Node& node) {
  Message message;
  for (const std::string& input : node.inputs) message.bytes(1, input);
  for (const std::string& output : node.outputs) message.bytes(2, output);
  message.bytes(3, node.outputs[0]);
  message.bytes(4, node.type);
  for (const Attribute& attribute : node.attributes) message.message(5, message_of(attribute));
  return message;
}

Message message_of(const Interface& interface) {
  Message shape;
  for (const Size& size : interface.sizes) {
    Message dimension;
    if (size.is_constant()) dimension.integer(1, size.constant);
    if (size == Size{.batch = 1}) dimension.bytes(2, "batch");
    if (size == Size{.length = 1}) dimension.bytes(2, "length");
    shape.message(1, dimension);
  }
  Message tensor, type, message;
  tensor.integer(1, number_of_type(interface.type));
  tensor.message(2, shape);
  type.message(1, tensor);
  message.bytes(1, interface.name);
  message.message(2, type);
  return message;
}

Message entry(const std::string& key, const std::string& value) {
  Message message;
  message.bytes(1, key);
  message.bytes(2, value);
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
    tensor.message(13, entry("location", name_));
    tensor.message(13, entry("offset", std::to_string(offset_)));
    tensor.message(13, entry("length", std::to_string(bytes.size())));
    tensor.integer(14, int64_t{1});
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
  for (const int64_t size : values.sizes()) message.integer(1, size);
  message.integer(2, number_of_type(values.scalar_type()));
  message.bytes(8, name);
  if (data && static_cast<int64_t>(values.nbytes()) > kSmall) {
    data->append(bytes_of(values), message);
  } else {
    message.bytes(9, bytes_of(values));
  }
  return message;
}

/// Returns the whole file.
Message message_of(const Message& graph, const std::map<std::string, std::string>& metadata) {
  Message operators, model;
  operators.bytes(1, "");
  operators.integer(2, kOperators);
  model.integer(1, kFileVersion);
  model.bytes(2, "gputrain");
  model.bytes(3, version());
  model.message(7, graph);
  model.message(8, operators);
  for (const auto& [key, value] : metadata) model.message(14, entry(key, value));
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
  for (const Node& node : nodes_) graph.message(1, message_of(node));
  graph.bytes(2, "model");
  for (const auto& [name, tensor] : constants_) graph.message(5, message_of(name, tensor.contiguous(), data));
  for (const Interface& input : inputs_)
    if (is_read(input.name)) graph.message(11, message_of(input));
  for (const Interface& output : outputs_) graph.message(12, message_of(output));
  const Message model = message_of(graph, options.metadata);
  if (data) data->commit();
  AtomicFile out(file, ExitCode::environment);
  out.write(model.wire());
  out.commit();
}

}  // namespace gputrain::app::onnx
