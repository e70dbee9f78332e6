#include "jpeg.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <turbojpeg.h>

namespace gputrain::data {
namespace {

/// After damage libjpeg continues and fills with grey. These warnings mean wrong pixels; the others (stray bytes before
/// a marker, an unusual version) are harmless.
bool is_damage(const char* warning) {
  constexpr const char* kDamage[] = {"remature end", "bad Huffman code", "instead of RST", "Invalid progressive"};
  return std::any_of(std::begin(kDamage), std::end(kDamage),
                     [warning](const char* text) { return std::strstr(warning, text) != nullptr; });
}

/// Whether the end marker is among the last bytes; some programs append bytes of their own.
bool has_end(std::span<const std::byte> file) {
  constexpr std::array kEnd{std::byte{0xFF}, std::byte{0xD9}};
  constexpr size_t kAppended = 65536;
  const auto tail = file.last(std::min(file.size(), kAppended));
  return std::search(tail.begin(), tail.end(), kEnd.begin(), kEnd.end()) != tail.end();
}

// Adobe files store inverted inks: 255 means no ink.
void inks_to_pixels(const std::vector<uint8_t>& inks, int64_t channels, std::vector<uint8_t>& pixels) {
  const auto light = [](int ink, int black) { return (ink * black + 127) / 255; };
  for (size_t i = 0, o = 0; i < inks.size(); i += 4) {
    const int black = inks[i + 3];
    const int red = light(inks[i], black), green = light(inks[i + 1], black), blue = light(inks[i + 2], black);
    if (channels == 1) {
      pixels[o++] = grey_of(red, green, blue);
    } else {
      for (const int value : {red, green, blue}) pixels[o++] = static_cast<uint8_t>(value);
    }
  }
}

}  // namespace

void JpegReader::Free::operator()(void* handle) const { tjDestroy(handle); }

JpegReader::JpegReader() { renew(); }

JpegReader::~JpegReader() = default;

void JpegReader::renew() {
  handle_.reset(tjInitDecompress());
  if (!handle_) throw std::bad_alloc();
}

// After a header that it rejected, libjpeg-turbo 2.1 takes the next file for the rest of that one: use a new handle.
void JpegReader::refuse(const std::string& what) {
  renew();
  throw_bad_image(name_, "not a readable JPEG file: " + what);
}

bool JpegReader::recognizes(std::span<const std::byte> file) {
  return file.size() >= 3 && file[0] == std::byte{0xFF} && file[1] == std::byte{0xD8} && file[2] == std::byte{0xFF};
}

ImageDecoder::Size JpegReader::open(std::span<const std::byte> file, const std::string& name) {
  file_ = file;
  name_ = name;
  int width = 0, height = 0, subsampling = 0, colorspace = 0;
  const int result = tjDecompressHeader3(handle_.get(), reinterpret_cast<const unsigned char*>(file.data()),
                                         file.size(), &width, &height, &subsampling, &colorspace);
  if (result != 0 && tjGetErrorCode(handle_.get()) != TJERR_WARNING) refuse(tjGetErrorStr2(handle_.get()));
  if (width < 1 || height < 1) refuse("no picture in it");
  check_image_size(width, height, name);
  is_cmyk_ = colorspace == TJCS_CMYK || colorspace == TJCS_YCCK;
  size_ = {width, height};
  return size_;
}

void JpegReader::decompress(int format, int64_t width, int64_t height, std::vector<uint8_t>& pixels) {
  // TJFLAG_LIMITSCANS, because hundreds of empty progressive scans make a small file take minutes.
  const int result =
      tjDecompress2(handle_.get(), reinterpret_cast<const unsigned char*>(file_.data()), file_.size(), pixels.data(),
                    static_cast<int>(width), 0, static_cast<int>(height), format, TJFLAG_LIMITSCANS);
  if (result == 0) return;
  const char* message = tjGetErrorStr2(handle_.get());
  const bool is_warning = tjGetErrorCode(handle_.get()) == TJERR_WARNING;
  if (!is_warning || is_damage(message)) throw_bad_image(name_, "damaged JPEG file: " + std::string(message));
  // libjpeg-turbo reports only the first warning, and a harmless one can hide that the file is truncated.
  if (!has_end(file_)) throw_bad_image(name_, "damaged JPEG file: it is cut off");
}

ImageView JpegReader::decode(int64_t channels, int64_t reduction, std::vector<uint8_t>& pixels) {
  const auto reduced = [reduction](int64_t length) { return (length + reduction - 1) / reduction; };
  const int64_t width = reduced(size_.width), height = reduced(size_.height);
  const auto area = static_cast<size_t>(width * height);
  pixels.resize(area * static_cast<size_t>(channels));
  if (is_cmyk_) {
    inks_.resize(area * 4);
    decompress(TJPF_CMYK, width, height, inks_);
    inks_to_pixels(inks_, channels, pixels);
  } else {
    decompress(channels == 1 ? TJPF_GRAY : TJPF_RGB, width, height, pixels);
  }
  return {pixels.data(), width, height, channels};
}

}  // namespace gputrain::data
