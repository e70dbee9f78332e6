#include "jpeg.hpp"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <jpeglib.h>

#include <jerror.h>

namespace gputrain::data {

struct JpegReader::State {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf back{};
  std::array<char, JMSG_LENGTH_MAX> message{};

  ~State() { jpeg_destroy_decompress(&info); }

  static State& of(j_common_ptr info) { return *static_cast<State*>(info->client_data); }

  [[noreturn]] static void refuse(j_common_ptr info) {
    info->err->format_message(info, of(info).message.data());
    std::longjmp(of(info).back, 1);
  }

  /// Refuses damage after which libjpeg continues and fills with grey. These warnings mean wrong pixels; the others
  /// (stray bytes before a marker, an unusual version) are harmless.
  static void take_warning(j_common_ptr info, int level) {
    constexpr std::array<int, 5> kDamage{JWRN_JPEG_EOF, JWRN_HIT_MARKER, JWRN_HUFF_BAD_CODE, JWRN_ARITH_BAD_CODE,
                                         JWRN_MUST_RESYNC};
    if (level < 0 && std::ranges::find(kDamage, info->err->msg_code) != kDamage.end()) refuse(info);
  }

  /// Limits scans: hundreds of empty progressive scans make a small file take minutes.
  static void limit_scans(j_common_ptr info) {
    constexpr int kMostScans = 500;
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
    std::snprintf(of(info).message.data(), JMSG_LENGTH_MAX, "more than %d scans", kMostScans);
    std::longjmp(of(info).back, 1);
  }
};

namespace {

constexpr const char* kDamaged = "damaged JPEG file: ";

// Converts CMYK as Adobe files store it, with inverted inks: 255 means no ink.
void inks_to_pixels(const std::vector<uint8_t>& inks, int64_t channels, uint8_t* pixels) {
  const auto light = [](int ink, int black) { return (ink * black + 127) / 255; };
  for (size_t i = 0; i < inks.size(); i += 4) {
    const int black = inks[i + 3];
    const int red = light(inks[i], black), green = light(inks[i + 1], black), blue = light(inks[i + 2], black);
    if (channels == 1) {
      *pixels++ = grey_of(red, green, blue);
    } else {
      for (const int value : {red, green, blue}) *pixels++ = static_cast<uint8_t>(value);
    }
  }
}

}  // namespace

template <class Calls>
void JpegReader::run(const char* failure, const Calls& calls) {
  if (setjmp(state_->back) != 0) throw_bad_image(name_, failure + std::string(state_->message.data()));
  calls();
}

JpegReader::JpegReader() : state_(std::make_unique<State>()) {
  state_->info.err = jpeg_std_error(&state_->errors);
  state_->info.client_data = state_.get();
  state_->errors.error_exit = State::refuse;
  state_->errors.emit_message = State::take_warning;
  state_->progress.progress_monitor = State::limit_scans;
  run("libjpeg: ", [this] { jpeg_create_decompress(&state_->info); });
  state_->info.progress = &state_->progress;
}

JpegReader::~JpegReader() = default;

bool JpegReader::recognizes(std::span<const std::byte> file) {
  return file.size() >= 3 && file[0] == std::byte{0xFF} && file[1] == std::byte{0xD8} && file[2] == std::byte{0xFF};
}

std::span<const std::byte> JpegReader::exif(std::span<const std::byte> file) {
  constexpr int kApp1 = 0xE1, kStartOfScan = 0xDA;
  constexpr char kExif[] = "Exif\0";  // six bytes with the final zero
  for (size_t at = 2; at + 4 <= file.size();) {
    const int marker = std::to_integer<int>(file[at + 1]);
    const size_t length = std::to_integer<size_t>(file[at + 2]) << 8 | std::to_integer<size_t>(file[at + 3]);
    if (file[at] != std::byte{0xFF} || marker == kStartOfScan || length < 2) return {};
    const auto segment = file.subspan(at + 4, std::min(length - 2, file.size() - at - 4));
    if (marker == kApp1 && segment.size() > sizeof(kExif) && std::memcmp(segment.data(), kExif, sizeof(kExif)) == 0)
      return segment.subspan(sizeof(kExif));
    at += 2 + length;
  }
  return {};
}

ImageDecoder::Size JpegReader::open(std::span<const std::byte> file, const std::string& name) {
  name_ = name;
  jpeg_decompress_struct& info = state_->info;
  run("not a readable JPEG file: ", [&] {
    jpeg_abort_decompress(&info);
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&info, TRUE);
  });
  check_image_size(info.image_width, info.image_height, name);
  return {info.image_width, info.image_height};
}

ImageView JpegReader::decode(int64_t channels, int64_t reduction, std::vector<uint8_t>& pixels) {
  jpeg_decompress_struct& info = state_->info;
  const bool has_inks = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = has_inks ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(reduction);
  run(kDamaged, [&] { jpeg_start_decompress(&info); });
  const size_t stride = info.output_width * static_cast<size_t>(channels);
  pixels.resize(info.output_height * stride);
  if (has_inks) inks_.resize(info.output_width * size_t{4});
  run(kDamaged, [&] {
    while (info.output_scanline < info.output_height) {
      uint8_t* const to = pixels.data() + info.output_scanline * stride;
      JSAMPROW row = has_inks ? inks_.data() : to;
      jpeg_read_scanlines(&info, &row, 1);
      if (has_inks) inks_to_pixels(inks_, channels, to);
    }
    jpeg_finish_decompress(&info);
  });
  return {pixels.data(), info.output_width, info.output_height, channels};
}

}  // namespace gputrain::data
