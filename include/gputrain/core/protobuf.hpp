// Wire format of protocol buffers, for files of trackers, of ONNX and of SentencePiece.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::protobuf {

/// Message that grows field by field.
class Message {
 public:
  Message& integer(uint32_t field, int64_t value);  // int32, int64, bool, enum
  Message& number(uint32_t field, double value);
  Message& single(uint32_t field, float value);
  Message& bytes(uint32_t field, std::string_view value);  // bytes, or a finished message
  Message& text(uint32_t field, std::string_view value);   // '?' replaces invalid UTF-8, which readers refuse
  Message& message(uint32_t field, const Message& value) { return bytes(field, value.wire()); }

  const std::string& wire() const { return wire_; }

 private:
  void varint(uint64_t value);

  std::string wire_;
};

struct Field {
  uint32_t number = 0;
  uint64_t value = 0;           // value of an integer; the bits of a double or float
  std::string_view bytes = {};  // value of a text, bytes or a message
};

/// Calls `take` for each field, in order. Returns false if the bytes are no message; the fields before were taken.
bool read_fields(std::string_view message, const std::function<void(const Field&)>& take);

/// Returns the last value of a field; 0 or empty if the message has none.
Field find_field(std::string_view message, uint32_t number);

}  // namespace gputrain::protobuf
