#include "gputrain/data/image.hpp"

#include <utility>

#include "gputrain/core/error.hpp"
#include "gputrain/core/file_kind.hpp"
#include "gputrain/data/upright.hpp"
#include "image_state.hpp"
#include "jpeg.hpp"
#include "png_reader.hpp"

namespace gputrain::data {

void throw_bad_image(const std::string& name, const std::string& what) {
  throw Error(ExitCode::data, {.what = what, .where = name});
}

void check_image_size(int64_t width, int64_t height, const std::string& name) {
  const std::string size = std::to_string(width) + " x " + std::to_string(height);
  if (width < 1 || height < 1) throw_bad_image(name, "an image of " + size + " pixels");
  if (width > kMostPixels / height)
    throw_bad_image(name, "an image of " + size + " pixels; at most " + std::to_string(kMostPixels) + " are decoded");
}

uint8_t grey_of(int red, int green, int blue) {
  return static_cast<uint8_t>((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
}

namespace {

int stored_orientation(std::span<const std::byte> file) {
  return orientation_of(JpegReader::recognizes(file) ? JpegReader::exif(file) : PngReader::exif(file));
}

}  // namespace

bool is_turned_upright(std::span<const std::byte> file) { return stored_orientation(file) != 1; }

struct ImageDecoder::State {
  JpegReader jpeg;
  PngReader png;
  bool is_jpeg = false;
  int orientation = 1;
  std::string name;
  std::vector<uint8_t> pixels, upright;
};

ImageDecoder::ImageDecoder() : state_(std::make_unique<State>()) {}

ImageDecoder::~ImageDecoder() = default;

ImageDecoder::Size ImageDecoder::open(std::span<const std::byte> file, const std::string& name) {
  state_->name = name;
  state_->is_jpeg = JpegReader::recognizes(file);
  if (!state_->is_jpeg && !PngReader::recognizes(file)) {
    const FileKind kind = file_kind({reinterpret_cast<const char*>(file.data()), file.size()});
    throw_bad_image(name, file.empty() ? "an empty file instead of an image" : "neither JPEG nor PNG" + kind.it_is());
  }
  Size size = state_->is_jpeg ? state_->jpeg.open(file, name) : state_->png.open(file, name);
  state_->orientation = stored_orientation(file);
  if (swaps_sides(state_->orientation)) std::swap(size.width, size.height);
  return size;
}

ImageView ImageDecoder::decode(int64_t channels, int64_t reduction) {
  GPUTRAIN_ASSERT(channels == 1 || channels == 3, "images become grey or RGB");
  const ImageView stored = state_->is_jpeg ? state_->jpeg.decode(channels, reduction, state_->pixels)
                                           : state_->png.decode(channels, state_->pixels);
  return upright(stored);
}

ImageView ImageDecoder::decode_numbers() {
  if (state_->is_jpeg)
    throw_bad_image(state_->name, "a JPEG instead of a mask: it changes the numbers of classes; a mask is a PNG");
  return upright(state_->png.decode_numbers(state_->pixels));
}

ImageView ImageDecoder::upright(const ImageView& stored) {
  if (state_->orientation == 1) return stored;
  apply_orientation(stored, state_->orientation, state_->upright);
  ImageView turned = stored;
  turned.pixels = state_->upright.data();
  if (swaps_sides(state_->orientation)) std::swap(turned.width, turned.height);
  return turned;
}

}  // namespace gputrain::data
