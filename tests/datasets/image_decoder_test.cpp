#include "gputrain/data/image.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include "datasets/jpegs.hpp"
#include "datasets/opened.hpp"
#include "gputrain/data/image_transform.hpp"
#include "gputrain/data/read_only_file.hpp"
#include "support/python_reference.hpp"

namespace gputrain::datasets {
namespace {

using ::testing::HasSubstr;

struct Decoded {
  data::ImageDecoder::Size size;
  std::vector<uint8_t> pixels;
};

Decoded decode(std::span<const std::byte> file, int64_t channels, const std::string& name = "image") {
  data::ImageDecoder decoder;
  Decoded decoded;
  decoded.size = decoder.open(file, name);
  const data::ImageView view = decoder.decode(channels);
  EXPECT_EQ(view.width, decoded.size.width);
  EXPECT_EQ(view.height, decoded.size.height);
  decoded.pixels.assign(view.pixels, view.pixels + view.width * view.height * view.channels);
  return decoded;
}

std::vector<std::byte> content_of(const std::string& path) {
  const data::ReadOnlyFile file(path);
  return file.read(0, file.size());
}

struct Difference {
  int greatest = 0;
  double mean = 0, bias = 0;
};

Difference compare(const std::vector<uint8_t>& ours, const std::vector<std::byte>& theirs) {
  EXPECT_EQ(ours.size(), theirs.size());
  Difference difference;
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    const int d = int{ours[i]} - std::to_integer<int>(theirs[i]);
    difference.greatest = std::max(difference.greatest, std::abs(d));
    difference.mean += std::abs(d) / static_cast<double>(ours.size());
    difference.bias += d / static_cast<double>(ours.size());
  }
  return difference;
}

class ImageReferenceTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    GPUTRAIN_NEED_REFERENCE("torchvision");
    GPUTRAIN_NEED_REFERENCE("PIL");
    for (const auto& [name, kind] : jpegs_beyond_pillow()) {
      const std::vector<std::byte> file = smooth_jpeg(83, 61, kind);
      write(name, {reinterpret_cast<const char*>(file.data()), file.size()});
    }
    ASSERT_TRUE(gputrain::testing::run_reference("datasets/image_reference.py", {folder_.string()}));
  }

  /// Pillow reads them, but does not write them.
  static std::map<std::string, JpegKind> jpegs_beyond_pillow() {
    return {{"sampling_410.jpg", {.sampling = {{4, 2}}}},
            {"sampling_411.jpg", {.sampling = {{4, 1}}}},
            {"sampling_440.jpg", {.sampling = {{1, 2}}}},
            {"sampling_1x4.jpg", {.sampling = {{1, 4}}}},
            {"sampling_3x1.jpg", {.sampling = {{3, 1}}}},
            {"sampling_mixed.jpg", {.sampling = {{2, 2}, {1, 2}, {2, 1}}}},
            {"sampling_progressive.jpg", {.sampling = {{4, 2}}, .progressive = true}},
            {"rgb.jpg", {.stored = JCS_RGB, .sampling = {}}},
            {"inks.jpg", {.pixels = JCS_CMYK, .stored = JCS_CMYK, .sampling = {}}},
            {"ycck.jpg", {.pixels = JCS_CMYK, .stored = JCS_YCCK, .sampling = {{2, 2}, {1, 1}, {1, 1}, {2, 2}}}}};
  }

  void check(std::istringstream& line, const std::string& file, const std::string& kind) const {
    const std::vector<std::byte> content = content_of(path(file));
    int64_t top = 0, left = 0, height = 0, width = 0, size = 0, resize = 0, channels = 3;
    std::vector<uint8_t> ours;
    if (kind == "decode") {
      line >> channels >> height >> width;
      const Decoded decoded = decode(content, channels, file);
      EXPECT_EQ(decoded.size.height, height);
      EXPECT_EQ(decoded.size.width, width);
      ours = decoded.pixels;
    } else {
      data::ImageDecoder decoder;
      const auto [image_width, image_height] = decoder.open(content, file);
      const data::ImageView image = decoder.decode(3);
      data::Fit fit;
      if (kind.starts_with("eval")) {
        line >> resize >> size;
        data::ImageOptions options;
        options.size.value = size;
        options.eval.resize.value = resize;
        if (kind == "eval_bicubic") options.eval.interpolation.value = "bicubic";
        fit = data::ImageTransform(options, data::Split::val, 0, 0).fit(0, {}, image_width, image_height);
      } else {
        line >> top >> left >> height >> width >> size;
        fit = {left, top, left + width, top + height, size, size, 0, 0, size, size, false};
        if (kind == "crop_bicubic") fit.filter = data::Filter::bicubic;
      }
      ours.resize(static_cast<size_t>(size * size * 3));
      data::fit_image(image, fit, ours.data());
    }
    std::string raw;
    line >> raw;
    const Difference difference = compare(ours, content_of(path(raw)));
    EXPECT_LE(difference.greatest, kind.ends_with("bicubic") ? 0 : 1) << line.str();
    // Pillow rounds after each of the two passes, we round once: about every fifth value differs by one.
    EXPECT_LE(difference.mean, kind == "decode" ? 0.02 : 0.25) << line.str();
    EXPECT_LE(std::abs(difference.bias), 0.15) << line.str();
  }
};

TEST_F(ImageReferenceTest, MatchesPillowAndTorchvision) {
  std::ifstream cases(path("cases.txt"));
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    std::istringstream words(line);
    std::string file, kind;
    words >> file >> kind;
    check(words, file, kind);
  }
  EXPECT_GT(count, 190);
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

std::vector<std::byte> noisy_png(uint32_t width, uint32_t height) {
  std::vector<uint8_t> pixels(size_t{width} * height * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * i * 31 >> 3);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr);
  std::vector<std::byte> file(size);
  EXPECT_TRUE(png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr));
  file.resize(size);
  return file;
}

std::string refusal(const std::vector<std::byte>& file) {
  return error_of([&file] { decode(file, 3, "some/file"); });
}

TEST(ImageDecoder, RefusesTruncatedFiles) {
  for (const auto& whole : {smooth_jpeg(64, 48), noisy_png(64, 48)})
    for (const double part : {0.2, 0.5, 0.9, 0.98}) {
      const auto length = static_cast<size_t>(static_cast<double>(whole.size()) * part);
      const std::string message = refusal({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length)});
      EXPECT_THAT(message, HasSubstr("some/file: ")) << part;
    }
}

TEST(ImageDecoder, RefusesDamagedPixels) {
  std::vector<std::byte> jpeg = smooth_jpeg(256, 256), png = noisy_png(64, 64);
  for (size_t i = jpeg.size() / 2; i < jpeg.size() / 2 + 40; ++i) jpeg[i] = std::byte{0xAA};
  jpeg[jpeg.size() / 2 + 60] = std::byte{0xFF};
  jpeg[jpeg.size() / 2 + 61] = std::byte{0xD9};
  EXPECT_THAT(refusal(jpeg), HasSubstr("damaged JPEG"));
  png[png.size() / 2] ^= std::byte{0x55};
  EXPECT_THAT(refusal(png), HasSubstr("damaged PNG"));
}

TEST(ImageDecoder, ReadsGoodFileAfterTruncatedOne) {
  const std::vector<std::byte> whole = smooth_jpeg(32, 24);
  data::ImageDecoder decoder;
  for (size_t length = 0; length + 2 < whole.size(); ++length) {
    EXPECT_THROW(
        {
          decoder.open(std::span(whole).first(length), "cut");
          decoder.decode(3, 1);
        },
        Error)
        << length;
    ASSERT_EQ(decoder.open(whole, "whole").width, 32) << "after one of " << length << " bytes";
    EXPECT_EQ(decoder.decode(3, 1).width, 32);
  }
}

TEST(ImageDecoder, AcceptsHarmlessOddities) {
  std::vector<std::byte> jpeg = smooth_jpeg(256, 192);
  const Decoded clean = decode(jpeg, 3);
  std::vector<std::byte> trailing = jpeg;
  trailing.insert(trailing.end(), 100, std::byte{0});
  EXPECT_EQ(decode(trailing, 3).pixels, clean.pixels);
  std::vector<std::byte> stray = jpeg;  // stray bytes between two segments
  stray.insert(stray.begin() + 20, {std::byte{0}, std::byte{1}, std::byte{2}});
  EXPECT_EQ(decode(stray, 3).pixels, clean.pixels);
  stray.resize(stray.size() / 2);
  EXPECT_THAT(refusal(stray), HasSubstr("damaged JPEG")) << "the first warning must not hide the second";
}

TEST(ImageDecoder, RefusesWhatIsNoImage) {
  EXPECT_THAT(refusal({}), HasSubstr("an empty file instead of an image"));
  EXPECT_THAT(refusal(bytes_of("GIF89a....")), HasSubstr("neither JPEG nor PNG"));
  EXPECT_THAT(refusal(bytes_of("version https://git-lfs.github.com/spec/v1\n")), HasSubstr("a Git LFS pointer"));
  EXPECT_THAT(refusal(bytes_of("\xff\xd8\xff")), HasSubstr("not a readable JPEG"));
  EXPECT_THAT(refusal(bytes_of("\x89PNG\r\n\x1a\n")), HasSubstr("damaged PNG"));
}

// A few hundred bytes that declare gigabytes are rejected by their header.
TEST(ImageDecoder, RefusesBombs) {
  std::vector<std::byte> jpeg = smooth_jpeg(16, 16);
  const std::vector<std::byte> marker{std::byte{0xFF}, std::byte{0xC0}};
  const auto frame = std::search(jpeg.begin(), jpeg.end(), marker.begin(), marker.end());
  ASSERT_NE(frame, jpeg.end());
  for (int i = 5; i < 9; ++i) frame[i] = std::byte{0xFA};
  EXPECT_THAT(refusal(jpeg), HasSubstr("an image of 64250 x 64250 pixels; at most 178956970 are decoded"));
  std::vector<std::byte> png = noisy_png(16, 16);
  for (const size_t at : {size_t{18}, size_t{22}}) png[at] = std::byte{0x09};  // width and height + 9 * 256
  png[17] = png[21] = std::byte{0x03};
  const uint32_t checksum = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(png.data() + 12), 17));
  for (size_t i = 0; i < 4; ++i) png[29 + i] = static_cast<std::byte>(checksum >> (24 - 8 * i));
  EXPECT_THAT(refusal(png), HasSubstr("pixels; at most 178956970 are decoded"));
}

// Each takes its time for all of the image, however few its bytes are.
TEST(ImageDecoder, RefusesHundredsOfScans) {
  std::vector<std::byte> jpeg = smooth_jpeg(16, 16, {.progressive = true});
  const Decoded clean = decode(jpeg, 3);
  const std::array start{std::byte{0xFF}, std::byte{0xDA}}, tables{std::byte{0xFF}, std::byte{0xC4}};
  const auto first = std::search(jpeg.begin(), jpeg.end(), start.begin(), start.end());
  const std::vector<std::byte> scan(first, std::search(first, jpeg.end(), tables.begin(), tables.end()));
  const ptrdiff_t at = first - jpeg.begin();
  for (int i = 0; i < 400; ++i) jpeg.insert(jpeg.begin() + at, scan.begin(), scan.end());
  EXPECT_EQ(decode(jpeg, 3).pixels, clean.pixels);
  for (int i = 0; i < 100; ++i) jpeg.insert(jpeg.begin() + at, scan.begin(), scan.end());
  EXPECT_THAT(refusal(jpeg), HasSubstr("damaged JPEG file: more than 500 scans"));
}

TEST(ImageDecoder, ReducesAJpegWhileDecoding) {
  const std::vector<std::byte> jpeg = smooth_jpeg(131, 67);
  data::ImageDecoder decoder;
  for (const int64_t reduction : {1, 2, 4, 8}) {
    decoder.open(jpeg, "image");
    const data::ImageView view = decoder.decode(3, reduction);
    EXPECT_EQ(view.width, (131 + reduction - 1) / reduction);
    EXPECT_EQ(view.height, (67 + reduction - 1) / reduction);
  }
}

}  // namespace
}  // namespace gputrain::datasets
