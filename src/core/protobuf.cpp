#include "gputrain/core/protobuf.hpp"

#include <bit>
#include <optional>

#include "gputrain/core/little_endian.hpp"
#include "gputrain/core/printable.hpp"

namespace gputrain::protobuf {
namespace {

enum Wire : uint32_t { kVarint = 0, kEightBytes = 1, kLengthAndBytes = 2, kFourBytes = 5 };

/// Reader that takes values off the front of `rest`.
struct Reader {
  std::string_view rest;

  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (size_t at = 0; at < rest.size() && at < 10; ++at) {
      const auto byte = static_cast<uint8_t>(rest[at]);
      value |= static_cast<uint64_t>(byte & 0x7F) << (7 * at);
      if (byte < 0x80) {
        rest.remove_prefix(at + 1);
        return value;
      }
    }
    return std::nullopt;
  }

  std::optional<std::string_view> bytes(uint64_t count) {
    if (count > rest.size()) return std::nullopt;
    const std::string_view taken = rest.substr(0, count);
    rest.remove_prefix(count);
    return taken;
  }

  std::optional<uint64_t> fixed(size_t count) {
    const auto taken = bytes(count);
    if (!taken) return std::nullopt;
    return from_little_endian(*taken);
  }

  std::optional<Field> field() {
    const auto key = varint();
    if (!key || *key >> 3 == 0 || *key >> 32 != 0) return std::nullopt;
    Field field{.number = static_cast<uint32_t>(*key >> 3)};
    std::optional<uint64_t> value;
    switch (*key & 7) {
      case kVarint:
        value = varint();
        break;
      case kEightBytes:
        value = fixed(8);
        break;
      case kFourBytes:
        value = fixed(4);
        break;
      case kLengthAndBytes:
        if (const auto count = varint()) {
          const auto taken = bytes(*count);
          if (!taken) return std::nullopt;
          field.bytes = *taken;
          return field;
        }
        break;
      default:
        break;
    }
    if (!value) return std::nullopt;
    field.value = *value;
    return field;
  }
};

}  // namespace

void Message::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) wire_ += static_cast<char>((value & 0x7F) | 0x80);
  wire_ += static_cast<char>(value);
}

Message& Message::integer(uint32_t field, int64_t value) {
  varint(field << 3 | kVarint);
  varint(static_cast<uint64_t>(value));
  return *this;
}

Message& Message::number(uint32_t field, double value) {
  varint(field << 3 | kEightBytes);
  wire_ += little_endian(std::bit_cast<uint64_t>(value), 8);
  return *this;
}

Message& Message::single(uint32_t field, float value) {
  varint(field << 3 | kFourBytes);
  wire_ += little_endian(std::bit_cast<uint32_t>(value), 4);
  return *this;
}

Message& Message::bytes(uint32_t field, std::string_view value) {
  varint(field << 3 | kLengthAndBytes);
  varint(value.size());
  wire_ += value;
  return *this;
}

Message& Message::text(uint32_t field, std::string_view value) { return bytes(field, printable(value, "\n\t")); }

bool read_fields(std::string_view message, const std::function<void(const Field&)>& take) {
  Reader reader{message};
  while (!reader.rest.empty()) {
    const auto field = reader.field();
    if (!field) return false;
    take(*field);
  }
  return true;
}

Field find_field(std::string_view message, uint32_t number) {
  Field found;
  read_fields(message, [&](const Field& field) {
    if (field.number == number) found = field;
  });
  return found;
}

}  // namespace gputrain::protobuf
