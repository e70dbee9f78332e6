// Messages in the wire format of protocol buffers.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace gputrain::app::onnx {

/// Message: fields in the order in which they are put.
class Message {
 public:
  void put(int field, int64_t value) {
    put_tag(field, kVarint);
    put_varint(static_cast<uint64_t>(value));
  }
  void put(int field, float value) {
    static_assert(std::endian::native == std::endian::little, "the format's order of bytes");
    put_tag(field, kFourBytes);
    bytes_.append(std::bit_cast<std::array<char, 4>>(value).data(), 4);
  }
  void put(int field, std::string_view bytes) {
    put_tag(field, kBytes);
    put_varint(bytes.size());
    bytes_ += bytes;
  }
  void put(int field, const Message& message) { put(field, std::string_view(message.bytes_)); }

  const std::string& bytes() const noexcept { return bytes_; }

 private:
  static constexpr int kVarint = 0, kBytes = 2, kFourBytes = 5;

  void put_tag(int field, int kind) { put_varint(static_cast<uint64_t>(field << 3 | kind)); }
  void put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace gputrain::app::onnx
