#include "gguf_file.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <type_traits>

#include "gputrain/core/atomic_file.hpp"

namespace gputrain::app {
namespace {

constexpr uint64_t kAlignment = 32;

uint64_t aligned(uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void put_text(std::string& out, const std::string& text) {
  put<uint64_t>(out, text.size());
  out += text;
}

// Returns the number of a value's type in the file.
template <class T>
constexpr uint32_t kind_of() {
  if constexpr (std::is_same_v<T, uint32_t>) return 4;
  if constexpr (std::is_same_v<T, int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_same_v<T, std::string>) return 8;
  return 9;  // a list
}

template <class T>
void put_one(std::string& out, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    put_text(out, value);
  } else {
    put(out, value);
  }
}

void put_value(std::string& out, const GgufValue& value) {
  std::visit(
      [&](const auto& held) {
        using T = std::decay_t<decltype(held)>;
        put(out, kind_of<T>());
        if constexpr (kind_of<T>() == 9) {
          put(out, kind_of<typename T::value_type>());
          put<uint64_t>(out, held.size());
          for (const auto& each : held) put_one(out, each);
        } else {
          put_one(out, held);
        }
      },
      value);
}

}  // namespace

uint64_t stored_bytes(const GgufTensor& tensor) {
  const auto count =
      static_cast<uint64_t>(std::accumulate(tensor.sizes.begin(), tensor.sizes.end(), int64_t{1}, std::multiplies<>()));
  switch (tensor.type) {
    case GgmlType::f32:
      return 4 * count;
    case GgmlType::q8_0:
      return count / 32 * 34;
    case GgmlType::f16:
    case GgmlType::bf16:
      break;
  }
  return 2 * count;
}

void GgufFile::write(const std::filesystem::path& path) const {
  std::string head = "GGUF";
  put<uint32_t>(head, 3);
  put<uint64_t>(head, tensors.size());
  put<uint64_t>(head, values.size());
  for (const auto& [key, value] : values) {
    put_text(head, key);
    put_value(head, value);
  }
  uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    put_text(head, tensor.name);
    put(head, static_cast<uint32_t>(tensor.sizes.size()));
    for (auto size = tensor.sizes.rbegin(); size != tensor.sizes.rend(); ++size)
      put(head, static_cast<uint64_t>(*size));
    put(head, static_cast<uint32_t>(tensor.type));
    put(head, offset);
    offset += aligned(stored_bytes(tensor));
  }
  head.resize(aligned(head.size()));
  AtomicFile file(path, ExitCode::environment);
  file.write(head);
  for (const GgufTensor& tensor : tensors) {
    std::string bytes = tensor.bytes();
    bytes.resize(aligned(bytes.size()));
    file.write(bytes);
  }
  file.commit();
}

}  // namespace gputrain::app
