// Arbitrary bytes as an image file: an error, or the declared number of pixels, then fitted to a crop. Corrects the
// checksums of PNG chunks first. The first two bytes choose channels, reduction and crop.
//
//   build/fuzz/tests/data/image_fuzzer -max_total_time=300 CORPUS tests/data/seeds/image
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "gputrain/data/image.hpp"
#include "support/fuzzed_file.hpp"

namespace {

using gputrain::testing::require;
namespace data = gputrain::data;

void mend_checksums(std::span<uint8_t> png) {
  const auto number = [&png](size_t at) {
    return uint32_t{png[at]} << 24 | uint32_t{png[at + 1]} << 16 | uint32_t{png[at + 2]} << 8 | uint32_t{png[at + 3]};
  };
  for (size_t at = 8; at + 12 <= png.size();) {
    const uint32_t length = number(at);
    if (length > png.size() - at - 12) return;
    const auto checksum = static_cast<uint32_t>(crc32(0, png.data() + at + 4, length + 4));
    for (size_t i = 0; i < 4; ++i) png[at + 8 + length + i] = static_cast<uint8_t>(checksum >> (24 - 8 * i));
    at += 12 + length;
  }
}

/// Chooses a crop [a, b) of an axis from one byte.
std::pair<int64_t, int64_t> part_of(int64_t length, uint8_t choice) {
  const int64_t begin = length * (choice & 15) / 32;
  return {begin, std::max(begin + 1, length - length * (choice >> 4) / 32)};
}

void decode_and_fit(data::ImageDecoder& decoder, std::span<const uint8_t> file, uint8_t first, uint8_t second) {
  const auto [width, height] = decoder.open(std::as_bytes(file), "f");
  require(width > 0 && height > 0 && width <= data::kMostPixels / height);
  if (width * height > 1 << 20) return;  // allowed, but slow here
  const int64_t channels = first & 1 ? 1 : 3, reduction = int64_t{1} << (first >> 1 & 3);
  const data::ImageView view = decoder.decode(channels, reduction);
  const bool is_reduced = view.width != width || view.height != height;
  require(view.channels == channels && (!is_reduced || view.width == (width + reduction - 1) / reduction));
  const auto [left, right] = part_of(width, second);
  const auto [top, bottom] = part_of(height, static_cast<uint8_t>(second * 37));
  const data::Fit fit{
      left, top, right,           bottom, 1 + (first >> 3), 1 + (second & 31), (second >> 5) - 3, (first >> 5) - 3,
      9,    7,   (first & 4) != 0};
  std::vector<uint8_t> out(static_cast<size_t>(fit.width * fit.height * channels));
  data::fit_image(view, fit, out.data(), is_reduced ? reduction : 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 2) return 0;
  std::vector<uint8_t> file(bytes + 2, bytes + size);
  if (file.size() > 8 && file[0] == 0x89) mend_checksums(file);
  static data::ImageDecoder decoder;  // reused like in a worker: one image must not affect the next
  gputrain::testing::accepts([&] { decode_and_fit(decoder, file, bytes[0], bytes[1]); });
  return 0;
}
