#include <algorithm>
#include <cstring>

#include "image_state.hpp"

namespace gputrain::data {
namespace {

/// Reader of numbers of a TIFF structure in its byte order; 0 outside its bytes.
class Tiff {
 public:
  explicit Tiff(std::span<const std::byte> bytes) : bytes_(bytes) {
    big_ = bytes.size() >= 2 && bytes[0] == std::byte{'M'};
  }

  uint32_t number(size_t at, size_t count) const {
    if (at > bytes_.size() || count > bytes_.size() - at) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i)
      value = value << 8 | std::to_integer<uint32_t>(bytes_[at + (big_ ? i : count - 1 - i)]);
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  bool big_;
};

}  // namespace

int orientation_of(std::span<const std::byte> exif) {
  constexpr uint32_t kOrientationTag = 0x0112, kShort = 3, kTiffMark = 42;
  constexpr size_t kEntryBytes = 12;
  const Tiff tiff(exif);
  if (tiff.number(2, 2) != kTiffMark) return 1;
  const size_t directory = tiff.number(4, 4);
  const size_t entries = tiff.number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    const uint32_t value = tiff.number(entry, 4) ? tiff.number(entry + 8, 2) : 1;
    return tiff.number(entry + 2, 2) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

void apply_orientation(const ImageView& from, int orientation, std::vector<uint8_t>& to) {
  const auto channels = static_cast<size_t>(from.channels);
  to.resize(static_cast<size_t>(from.width * from.height) * channels);
  const bool swapped = swaps_sides(orientation);
  const int64_t width = swapped ? from.height : from.width, height = swapped ? from.width : from.height;
  // 2, 3, 4: mirror, rotate by 180 degrees, flip; 5 to 8: transpose, then the same.
  const bool mirror_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirror_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  uint8_t* out = to.data();
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      int64_t source_x = swapped ? y : x, source_y = swapped ? x : y;
      if (mirror_x) source_x = from.width - 1 - source_x;
      if (mirror_y) source_y = from.height - 1 - source_y;
      std::memcpy(out, from.pixels + static_cast<size_t>(source_y * from.width + source_x) * channels, channels);
      out += channels;
    }
}

}  // namespace gputrain::data
