#include "png_reader.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <png.h>

#include "gputrain/core/error.hpp"

namespace gputrain::data {
namespace {

constexpr std::array<uint8_t, 8> kSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr size_t kChunkFrame = 12;  // length, type, checksum

uint32_t big_endian(const std::byte* at) {
  return std::to_integer<uint32_t>(at[0]) << 24 | std::to_integer<uint32_t>(at[1]) << 16 |
         std::to_integer<uint32_t>(at[2]) << 8 | std::to_integer<uint32_t>(at[3]);
}

/// Calls `visit` for each chunk, with its frame, until it returns false.
template <class Visit>
void visit_chunks(std::span<const std::byte> file, const Visit& visit) {
  for (size_t at = kSignature.size(); file.size() - at >= kChunkFrame;) {
    const size_t length = std::min(big_endian(file.data() + at) + kChunkFrame, file.size() - at);
    if (!visit(file.subspan(at, length))) return;
    at += length;
  }
}

/// Returns the file without its ancillary chunks. Colour profiles, gamma and transparency would change pixels, so that
/// they differ from what other tools train on; all ancillary chunks add attack surface.
std::vector<std::byte> critical_chunks(std::span<const std::byte> file) {
  std::vector<std::byte> kept(file.begin(), file.begin() + kSignature.size());
  visit_chunks(file, [&kept](std::span<const std::byte> chunk) {
    const bool is_critical = (std::to_integer<int>(chunk[4]) & 0x20) == 0;
    if (is_critical) kept.insert(kept.end(), chunk.begin(), chunk.end());
    return true;
  });
  return kept;
}

/// Owner of libpng's control structure.
class Image {
 public:
  Image(std::span<const std::byte> file, const std::string& name) : name_(name) {
    image_.version = PNG_IMAGE_VERSION;
    png_image_begin_read_from_memory(&image_, file.data(), file.size());
    check();
  }
  ~Image() { png_image_free(&image_); }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  int64_t width() const { return image_.width; }
  int64_t height() const { return image_.height; }

  void read_rgba(std::vector<uint8_t>& rgba) {
    image_.format = PNG_FORMAT_RGBA;
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // otherwise libpng takes 16-bit values for linear light
    rgba.resize(PNG_IMAGE_SIZE(image_));
    png_image_finish_read(&image_, nullptr, rgba.data(), 0, nullptr);
    check();
  }

  /// Reads numbers: libpng keeps the order of a palette, and makes one of grey values in their order.
  void read_numbers(std::vector<uint8_t>& numbers) {
    image_.format = PNG_FORMAT_RGB_COLORMAP;
    numbers.resize(PNG_IMAGE_SIZE(image_));
    std::vector<uint8_t> palette(PNG_IMAGE_COLORMAP_SIZE(image_));
    png_image_finish_read(&image_, nullptr, numbers.data(), 0, palette.data());
    check();
  }

 private:
  void check() const {
    if (PNG_IMAGE_FAILED(image_)) throw_bad_image(name_, "damaged PNG file: " + std::string(image_.message));
  }

  png_image image_{};
  const std::string& name_;
};

}  // namespace

bool PngReader::recognizes(std::span<const std::byte> file) {
  return file.size() >= kSignature.size() && std::memcmp(file.data(), kSignature.data(), kSignature.size()) == 0;
}

std::span<const std::byte> PngReader::exif(std::span<const std::byte> file) {
  std::span<const std::byte> exif;
  visit_chunks(file, [&exif](std::span<const std::byte> chunk) {
    if (std::memcmp(chunk.data() + 4, "eXIf", 4) == 0) exif = chunk.subspan(8, chunk.size() - kChunkFrame);
    return exif.empty();
  });
  return exif;
}

ImageDecoder::Size PngReader::open(std::span<const std::byte> file, const std::string& name) {
  file_ = file;
  name_ = name;
  constexpr size_t kFirstChunk = 8, kHeaderEnd = 33;
  if (file.size() < kHeaderEnd || std::memcmp(file.data() + kFirstChunk + 4, "IHDR", 4) != 0)
    throw_bad_image(name, "damaged PNG file: it does not begin with a header");
  const ImageDecoder::Size size{big_endian(file.data() + kFirstChunk + 8), big_endian(file.data() + kFirstChunk + 12)};
  check_image_size(size.width, size.height, name);
  return size;
}

ImageView PngReader::decode(int64_t channels, std::vector<uint8_t>& pixels) {
  const std::vector<std::byte> file = critical_chunks(file_);
  Image image(file, name_);
  check_image_size(image.width(), image.height(), name_);
  thread_local std::vector<uint8_t> rgba;
  image.read_rgba(rgba);
  pixels.resize(rgba.size() / 4 * static_cast<size_t>(channels));
  for (size_t i = 0, o = 0; i < rgba.size(); i += 4) {
    if (channels == 1) {
      pixels[o++] = grey_of(rgba[i], rgba[i + 1], rgba[i + 2]);
    } else {
      for (size_t c = 0; c < 3; ++c) pixels[o++] = rgba[i + c];
    }
  }
  return {pixels.data(), image.width(), image.height(), channels};
}

ImageView PngReader::decode_numbers(std::vector<uint8_t>& pixels) {
  constexpr size_t kBitDepth = 24, kColourType = 25;
  const auto bits = std::to_integer<int>(file_[kBitDepth]), type = std::to_integer<int>(file_[kColourType]);
  const bool are_numbers = type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_PALETTE;
  if (bits > 8) throw_bad_image(name_, "no mask: its pixels are of 16 bits; a mask has class numbers of 8 bits");
  if (!are_numbers) return decode_grey_colours(pixels);
  const std::vector<std::byte> file = critical_chunks(file_);
  Image image(file, name_);
  check_image_size(image.width(), image.height(), name_);
  image.read_numbers(pixels);
  return {pixels.data(), image.width(), image.height(), 1};
}

ImageView PngReader::decode_grey_colours(std::vector<uint8_t>& pixels) {
  const std::vector<std::byte> file = critical_chunks(file_);
  Image image(file, name_);
  check_image_size(image.width(), image.height(), name_);
  thread_local std::vector<uint8_t> rgba;
  image.read_rgba(rgba);
  constexpr uint8_t kOpaque = 255;
  pixels.resize(rgba.size() / 4);
  for (size_t i = 0; i < pixels.size(); ++i) {
    const uint8_t* const pixel = &rgba[4 * i];
    if (pixel[0] != pixel[1] || pixel[0] != pixel[2] || pixel[3] != kOpaque)
      throw Error(ExitCode::data, {.what = "no mask: its pixels are colours or have transparency",
                                   .where = name_,
                                   .hint = "convert all masks to PNG files of 8-bit grey, or with a palette, whose "
                                           "numbers are the classes"});
    pixels[i] = pixel[0];
  }
  return {pixels.data(), image.width(), image.height(), 1};
}

}  // namespace gputrain::data
