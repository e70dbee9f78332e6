// Any bytes as a checkpoint's manifest: refused as damage with a message fit for a terminal, or read as names within
// the folder and slices within their tensors that are written and read again as the same.
//
//   build/fuzz/tests/checkpoint/manifest_fuzzer -max_total_time=300 CORPUS tests/checkpoint/manifests
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "gputrain/checkpoint/manifest.hpp"

namespace {

using namespace gputrain::checkpoint;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_slice(const Slice& slice) {
  uint64_t numel = 1;
  for (const int64_t size : slice.shape) {
    require(size >= 0);
    require(!__builtin_mul_overflow(numel, static_cast<uint64_t>(size), &numel));
  }
  require(slice.begin >= 0 && static_cast<uint64_t>(slice.begin) <= numel);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Manifest manifest;
  try {
    manifest = parse_manifest({reinterpret_cast<const char*>(data), size}, "f");
  } catch (const Damage& damage) {
    const std::string what = damage.what();
    require(what.size() < 1000);
    require(std::none_of(what.begin(), what.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }));
    return 0;
  }
  require(manifest.step >= 0 && manifest.files.count(kStateName) == 1);
  for (const auto& [name, file] : manifest.files) {
    require(!name.empty() && name.find('/') == std::string::npos && name != "." && name != ".." &&
            name != kManifestName);
    for (const auto& [tensor, slice] : file.slices) check_slice(slice);
  }
  const std::string written = to_json(manifest);
  const Manifest again = parse_manifest(written, "f");
  require(to_json(again) == written);
  return 0;
}
