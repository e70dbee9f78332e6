// Any bytes as a checkpoint's manifest, and any JSON with a valid seal: rejected as damage with a message that is safe
// for a terminal, or read as file names inside the folder and slices inside their tensors that survive a round trip.
//
//   build/fuzz/tests/checkpoint/manifest_fuzzer -max_total_time=300 CORPUS tests/checkpoint/manifests
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

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
  if (!slice.cut) return;
  require(slice.order.empty() && slice.cut->dim >= 0);
  int64_t reached = 0, left = 0;
  for (const auto& [begin, end] : slice.cut->ranges) {
    require(reached <= begin && begin < end);
    reached = end;
    left += end - begin;
  }
  const int64_t size = slice.shape.at(static_cast<size_t>(slice.cut->dim));
  require(0 < left && reached <= size);
  require(static_cast<uint64_t>(slice.begin) <= numel / static_cast<uint64_t>(size) * static_cast<uint64_t>(left));
}

/// The text with the seal that its writer would add; "" if it is no JSON object.
std::string sealed(std::string_view text) {
  auto value = nlohmann::json::parse(text, nullptr, false);
  if (!value.is_object()) return "";
  const std::string zeros(32, '0'), key = "\n  \"seal\": \"";
  value["seal"] = zeros;
  std::string written = value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  Sealer sealer;
  sealer.add(written.data(), written.size());
  return written.replace(written.find(key) + key.size(), zeros.size(), sealer.seal().xxh3_128);
}

void read_and_write_again(std::string_view text) {
  Manifest manifest;
  try {
    manifest = parse_manifest(text, "f");
  } catch (const gputrain::Error& refusal) {
    require(refusal.code() == gputrain::ExitCode::checkpoint);
    const std::string what = refusal.what();
    require(what.size() < 1000);
    require(std::none_of(what.begin(), what.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }));
    return;
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
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_and_write_again(text);
  read_and_write_again(sealed(text));
  return 0;
}
