// Any bytes as a safetensors file, first unchanged, then as a header (up to the first zero byte) before data: rejected
// with a message that is safe for a terminal, or read as tensors that cover the data and can be laid out again.
//
//   build/fuzz/tests/checkpoint/safetensors_fuzzer -max_total_time=300 CORPUS tests/checkpoint/headers
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "gputrain/checkpoint/safetensors_header.hpp"

namespace {

using gputrain::checkpoint::item_bytes;
using gputrain::checkpoint::layout_safetensors;
using gputrain::checkpoint::parse_safetensors;
using gputrain::checkpoint::SafetensorsHeader;
using gputrain::checkpoint::StoredTensor;

std::string with_length(std::string_view header, std::string_view data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file.append(header).append(data);
}

void require(bool condition) {
  if (!condition) std::abort();
}

SafetensorsHeader parse(std::string_view file) {
  return parse_safetensors(file, file.size(), "f", gputrain::ExitCode::data);
}

void check(std::string_view file) {
  SafetensorsHeader header;
  try {
    header = parse(file);
  } catch (const gputrain::Error& error) {
    const std::string what = error.parts().what + error.parts().hint;
    require(what.size() < 1000);
    require(std::none_of(what.begin(), what.end(),
                         [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }));
    return;
  }
  uint64_t reached = header.tensors.empty() ? file.size() : header.tensors.front().begin;
  for (const StoredTensor& tensor : header.tensors) {
    uint64_t bytes = item_bytes(tensor.dtype);
    for (const int64_t size : tensor.sizes) bytes *= static_cast<uint64_t>(size);
    require(tensor.begin == reached && tensor.end == reached + bytes);
    reached = tensor.end;
  }
  require(reached == file.size());

  std::string again = layout_safetensors(header.tensors, header.metadata);
  if (!header.tensors.empty()) again.resize(header.tensors.back().end, 'd');
  const SafetensorsHeader same = parse(again);
  require(same.metadata == header.metadata && same.tensors.size() == header.tensors.size());
  for (size_t i = 0; i < same.tensors.size(); ++i) require(same.tensors[i].end == header.tensors[i].end);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(bytes);
  const size_t end = std::min(bytes.find('\0'), size);
  check(with_length(bytes.substr(0, end), bytes.substr(std::min(end + 1, size))));
  return 0;
}
