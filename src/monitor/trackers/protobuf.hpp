// Writes and reads the wire format of protocol buffers, of which the files of trackers are made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::monitor::protobuf {

/// A message that grows field by field.
class Message {
 public:
  Message& integer(uint32_t field, int64_t value);  // int32, int64, bool, enum
  Message& number(uint32_t field, double value);
  Message& single(uint32_t field, float value);
  Message& numbers(uint32_t field, const std::vector<double>& values);
  Message& bytes(uint32_t field, std::string_view value);  // bytes, or a message that is written already
  Message& text(uint32_t field, std::string_view value);   // what is not UTF-8 becomes '?': readers refuse it
  Message& message(uint32_t field, const Message& value) { return bytes(field, value.wire()); }

  const std::string& wire() const { return wire_; }

 private:
  void varint(uint64_t value);

  std::string wire_;
};

struct Field {
  uint32_t number = 0;
  uint64_t value = 0;           // of an integer; the bits of a double or float
  std::string_view bytes = {};  // of text, bytes or a message
};

/// Calls `take` for each field, in order. Returns false where the bytes are no message; the fields before were taken.
bool read_fields(std::string_view message, const std::function<void(const Field&)>& take);

/// The last value of a field; 0 or empty where the message has none.
Field find_field(std::string_view message, uint32_t number);

}  // namespace gputrain::monitor::protobuf
