// Reads messages of protocol buffers, as far as SentencePiece's models need it.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace gputrain::tokenizers {

/// The fields of one message, in the order of the file. Nothing is copied.
class ProtobufFields {
 public:
  explicit ProtobufFields(std::string_view message) : rest_(message) {}

  /// Goes to the next field. False at the end, or if what follows is no field: is_broken() tells.
  bool next() {
    uint64_t tag = 0;
    if (rest_.empty() || is_broken_ || !read_number(tag)) return false;
    number_ = tag >> 3;
    switch (tag & 7) {
      case 0:
        return read_number(value_);
      case 1:
        return read_fixed(8);
      case 2: {
        uint64_t bytes = 0;
        if (!read_number(bytes)) return false;
        if (bytes > rest_.size()) return fail();
        bytes_ = rest_.substr(0, bytes);
        rest_.remove_prefix(bytes);
        return true;
      }
      case 5:
        return read_fixed(4);
      default:
        return fail();
    }
  }
  bool is_broken() const { return is_broken_; }

  uint64_t number() const { return number_; }        // of the field
  uint64_t value() const { return value_; }          // of a number or a bool
  std::string_view bytes() const { return bytes_; }  // of a text or a message
  float as_float() const { return std::bit_cast<float>(static_cast<uint32_t>(value_)); }

 private:
  bool fail() {
    is_broken_ = true;
    return false;
  }
  bool read_number(uint64_t& number) {
    number = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      number |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return fail();
  }
  bool read_fixed(size_t size) {
    if (size > rest_.size()) return fail();
    value_ = 0;
    std::memcpy(&value_, rest_.data(), size);  // both little-endian
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_, bytes_;
  uint64_t number_ = 0, value_ = 0;
  bool is_broken_ = false;
};

}  // namespace gputrain::tokenizers
