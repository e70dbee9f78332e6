#include "gputrain/data/image.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <turbojpeg.h>
#include <zlib.h>

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
    ASSERT_TRUE(gputrain::testing::run_reference("datasets/image_reference.py", {folder_.string()}));
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
      if (kind == "eval") {
        line >> resize >> size;
        data::ImageOptions options;
        options.size.value = size;
        options.eval.resize.value = resize;
        fit = data::ImageTransform(options, data::Split::val, 0, 0).fit(0, {}, image_width, image_height);
      } else {
        line >> top >> left >> height >> width >> size;
        fit = {left, top, left + width, top + height, size, size, 0, 0, size, size, false};
      }
      ours.resize(static_cast<size_t>(size * size * 3));
      data::fit_image(image, fit, ours.data());
    }
    std::string raw;
    line >> raw;
    const Difference difference = compare(ours, content_of(path(raw)));
    EXPECT_LE(difference.greatest, 1) << line.str();
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
  EXPECT_GT(count, 90);
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

std::vector<std::byte> smooth_jpeg(int width, int height, int quality = 90) {
  std::vector<uint8_t> pixels(static_cast<size_t>(width * height * 3));
  for (size_t i = 0; i < pixels.size(); ++i) {
    const double x = static_cast<double>(i / 3 % static_cast<size_t>(width)),
                 y = static_cast<double>(i / 3 / static_cast<size_t>(width));
    pixels[i] = static_cast<uint8_t>(127 + 90 * std::sin(x / 20 + static_cast<double>(i % 3)) * std::cos(y / 15));
  }
  unsigned char* packed = nullptr;
  unsigned long size = 0;
  const tjhandle handle = tjInitCompress();
  EXPECT_EQ(tjCompress2(handle, pixels.data(), width, 0, height, TJPF_RGB, &packed, &size, TJSAMP_420, quality, 0), 0);
  std::vector<std::byte> file(reinterpret_cast<std::byte*>(packed), reinterpret_cast<std::byte*>(packed) + size);
  tjFree(packed);
  tjDestroy(handle);
  return file;
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

TEST(ImageTransform, ReducesOnlyTrainingImagesNotBelowOutput) {
  const data::Fit fit{.right = 900, .bottom = 1000, .full_width = 224, .full_height = 224, .width = 224, .height = 224};
  EXPECT_EQ(data::ImageTransform::reduction(fit, {.augment = true}), 4);
  EXPECT_EQ(data::ImageTransform::reduction(fit, {.augment = false}), 1);
}

TEST(ImageTransform, FitsReducedImageLikeTheWhole) {
  data::ImageDecoder decoder;
  const std::vector<std::byte> jpeg = smooth_jpeg(600, 500, 98);
  const data::Fit fit{.left = 31,
                      .top = 17,
                      .right = 597,
                      .bottom = 480,
                      .full_width = 100,
                      .full_height = 90,
                      .width = 100,
                      .height = 90};
  std::vector<uint8_t> whole(100 * 90 * 3), reduced(whole.size());
  decoder.open(jpeg, "image");
  data::fit_image(decoder.decode(3), fit, whole.data());
  decoder.open(jpeg, "image");
  data::fit_image(decoder.decode(3, 4), fit, reduced.data(), 4);
  double sum = 0;
  for (size_t i = 0; i < whole.size(); ++i) sum += std::abs(int{whole[i]} - int{reduced[i]});
  EXPECT_LT(sum / static_cast<double>(whole.size()), 2.5);
}

data::ImageOptions image_options(const std::string& image) {
  const std::string text = "data: {train: {format: synthetic}, image: {" + image + "}}";
  const auto job = config::load(config::schema_of<JobWithData>(), {.file = "job.yaml", .text = text});
  return job.as<JobWithData>().data.image;
}

data::ImageOptions options_with(int64_t size, std::vector<double> area = {}, int64_t padding = 0, double hflip = 0) {
  std::string augment = "random_crop_padding: " + std::to_string(padding) + ", hflip: " + std::to_string(hflip);
  if (!area.empty())
    augment += ", random_resized_crop: [" + std::to_string(area[0]) + ", " + std::to_string(area[1]) + "]";
  return image_options("size: " + std::to_string(size) + ", augment: {" + augment + "}");
}

constexpr data::ReadContext kTraining{.seed = 9, .epoch = 4, .augment = true};

TEST(ImageTransform, DrawsCropsOfGivenAreaAndShape) {
  const data::ImageTransform transform(options_with(224, {0.08, 1.0}), data::Split::train, 0, 0);
  double area = 0, least = 1, flips = 0, top = 0, left = 0, shape = 0;
  constexpr int kDraws = 4000;
  for (int64_t i = 0; i < kDraws; ++i) {
    const data::Fit fit = transform.fit(i, kTraining, 500, 375);
    const double width = static_cast<double>(fit.right - fit.left), height = static_cast<double>(fit.bottom - fit.top);
    ASSERT_TRUE(fit.left >= 0 && fit.right <= 500 && fit.top >= 0 && fit.bottom <= 375);
    ASSERT_LT(std::abs(std::log(width / height)), std::log(4.0 / 3) + 0.03);
    const double part = width * height / (500 * 375);
    area += part;
    top += static_cast<double>(fit.top);
    left += static_cast<double>(fit.left);
    shape += std::log(width / height);
    least = std::min(least, part);
    flips += fit.flip;
  }
  // The means of 40,000 draws of torchvision's RandomResizedCrop.get_params for this image.
  EXPECT_NEAR(area / kDraws, 0.4316, 0.015);
  EXPECT_NEAR(top / kDraws, 52.4, 3.5);
  EXPECT_NEAR(left / kDraws, 109.4, 5.5);
  EXPECT_NEAR(shape / kDraws, 0.0306, 0.012);
  EXPECT_GT(least, 0.075);
  EXPECT_EQ(flips, 0);
  const data::Fit narrow = transform.fit(0, kTraining, 1000, 10);
  EXPECT_TRUE(narrow.right - narrow.left == 13 && narrow.bottom - narrow.top == 10) << "falls back to the middle";
}

TEST(ImageTransform, CropsPaddedImageEverywhereAndFlips) {
  const data::ImageTransform transform(options_with(32, {}, 4, 0.25), data::Split::train, 0, 0);
  std::vector<int> xs(9), ys(9);
  int flips = 0;
  constexpr int kDraws = 9000;
  for (int64_t i = 0; i < kDraws; ++i) {
    const data::Fit fit = transform.fit(i, kTraining, 32, 32);
    ++xs.at(static_cast<size_t>(fit.x + 4));
    ++ys.at(static_cast<size_t>(fit.y + 4));
    flips += fit.flip;
  }
  for (const int count : xs) EXPECT_NEAR(count, kDraws / 9, 150);
  for (const int count : ys) EXPECT_NEAR(count, kDraws / 9, 150);
  EXPECT_NEAR(flips, kDraws / 4, 200);
}

TEST(ImageTransform, DependsOnlyOnSeedEpochAndSample) {
  const data::ImageTransform transform(options_with(32, {0.3, 0.9}), data::Split::train, 0, 0);
  const auto left = [&transform](int64_t index, data::ReadContext context) {
    return transform.fit(index, context, 1 << 20, 1 << 20).left;
  };
  EXPECT_EQ(left(5, kTraining), left(5, kTraining));
  EXPECT_NE(left(5, kTraining), left(6, kTraining));
  EXPECT_NE(left(5, kTraining), left(5, {.seed = 9, .epoch = 5, .augment = true}));
  EXPECT_NE(left(5, kTraining), left(5, {.seed = 8, .epoch = 4, .augment = true}));
}

/// Changes geometry and colour: moves the image down by some pixels and inverts some images.
struct DroopSpec {
  int64_t pixels = 0;
  static void describe(config::Description<DroopSpec>& d) {
    d.key("droop", &DroopSpec::pixels, "pixels that the image moves down at most").range(0, 8);
  }
};
class Droop final : public data::Augmentation {
 public:
  explicit Droop(const DroopSpec& spec) : pixels_(spec.pixels) {}
  bool is_on() const override { return pixels_ > 0; }
  int order() const override { return 25; }
  void place(RandomStream& random, const data::ImageDecoder::Size&, data::Fit& fit) const override {
    fit.y -= random.below(pixels_ + 1);
  }
  void recolour(RandomStream& random, const data::Pixels& pixels) const override {
    if (random.uniform() < 0.5) return;
    for (int64_t i = 0; i < pixels.width * pixels.height * pixels.channels; ++i)
      pixels.values[i] = static_cast<uint8_t>(255 - pixels.values[i]);
  }

 private:
  int64_t pixels_;
};
const config::Registered<Droop, DroopSpec> registered_droop{data::augmentations(), "droop", "for this test"};

TEST(Augmentations, IncludeOneThatAFileRegistersWithItsKey) {
  const data::ImageTransform transform(image_options("size: 4, augment: {droop: 2, hflip: 0.5}"), data::Split::train, 0,
                                       0);
  std::set<int64_t> ys;
  std::set<bool> flips;
  int inverted = 0;
  constexpr int kDraws = 400;
  for (int64_t i = 0; i < kDraws; ++i) {
    const data::Fit fit = transform.fit(i, kTraining, 4, 4);
    ys.insert(fit.y);
    flips.insert(fit.flip);
    std::vector<uint8_t> pixels(16, 5);
    transform.recolour(i, kTraining, pixels.data(), 1);
    inverted += pixels == std::vector<uint8_t>(16, 250);
    transform.recolour(i, {.seed = 9, .epoch = 4, .augment = false}, pixels.data(), 1);
  }
  EXPECT_EQ(ys, (std::set<int64_t>{-2, -1, 0}));
  EXPECT_EQ(flips.size(), 2U);
  EXPECT_NEAR(inverted, kDraws / 2, 40);
  EXPECT_THAT(error_of([] { image_options("augment: {droop: 9}"); }, ExitCode::usage), HasSubstr("droop"));
}

// A further augmentation must not change the random draws of existing ones.
TEST(Augmentations, ThatAreOffDrawNothing) {
  const auto fit_of = [](const std::string& augment, int64_t index) {
    const data::ImageTransform transform(image_options("size: 32, augment: {" + augment + "}"), data::Split::train, 0,
                                         0);
    const data::Fit fit = transform.fit(index, kTraining, 40, 36);
    return std::tuple(fit.x, fit.y, fit.flip);
  };
  // The values that earlier versions drew.
  const std::vector<std::tuple<int64_t, int64_t, bool>> expected{{5, 1, false},  {4, 1, false},  {1, 1, true},
                                                                 {6, -1, false}, {4, -1, false}, {3, 2, false}};
  for (int64_t i = 0; i < std::ssize(expected); ++i) {
    const auto index = static_cast<size_t>(i);
    EXPECT_EQ(fit_of("random_crop_padding: 4, hflip: 0.5", i), expected[index]) << i;
    EXPECT_EQ(fit_of("random_crop_padding: 4, hflip: 0.5, droop: 0", i), expected[index]) << i;
  }
}

TEST(FitImage, ShowsBlackOutsideAndFlipsLast) {
  const std::vector<uint8_t> pixels{1, 2, 3, 4, 5, 6};  // 3 x 2
  const data::ImageView image{pixels.data(), 3, 2, 1};
  data::Fit fit{.right = 3, .bottom = 2, .full_width = 3, .full_height = 2, .x = -1, .y = 1, .width = 3, .height = 2};
  std::vector<uint8_t> out(6, 99);
  data::fit_image(image, fit, out.data());
  EXPECT_EQ(out, (std::vector<uint8_t>{0, 4, 5, 0, 0, 0}));
  fit.flip = true;
  data::fit_image(image, fit, out.data());
  EXPECT_EQ(out, (std::vector<uint8_t>{5, 4, 0, 0, 0, 0}));
  fit.x = 5;  // outside the image
  data::fit_image(image, fit, out.data());
  EXPECT_EQ(out, std::vector<uint8_t>(6, 0));
}

TEST(FitImage, FlipsResizedImagesExactly) {
  std::vector<uint8_t> pixels(40 * 30 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37);
  data::Fit fit{
      .right = 40, .bottom = 30, .full_width = 17, .full_height = 23, .x = -2, .y = 3, .width = 17, .height = 20};
  std::vector<uint8_t> straight(17 * 20 * 3), flipped(straight.size());
  data::fit_image({pixels.data(), 40, 30, 3}, fit, straight.data());
  fit.flip = true;
  data::fit_image({pixels.data(), 40, 30, 3}, fit, flipped.data());
  for (size_t y = 0; y < 20; ++y)
    for (size_t x = 0; x < 17; ++x)
      for (size_t c = 0; c < 3; ++c) ASSERT_EQ(flipped[(y * 17 + x) * 3 + c], straight[(y * 17 + 16 - x) * 3 + c]);
}

}  // namespace
}  // namespace gputrain::datasets
