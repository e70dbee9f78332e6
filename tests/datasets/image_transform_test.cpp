#include "gputrain/data/image_transform.hpp"

#include <cmath>
#include <set>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "datasets/jpegs.hpp"
#include "datasets/opened.hpp"
#include "gputrain/data/image.hpp"

namespace gputrain::datasets {
namespace {

using ::testing::HasSubstr;

TEST(ImageTransform, ReducesOnlyTrainingImagesNotBelowOutput) {
  const data::Fit fit{.right = 900, .bottom = 1000, .full_width = 224, .full_height = 224, .width = 224, .height = 224};
  EXPECT_EQ(data::ImageTransform::reduction(fit, {.augment = true}), 4);
  EXPECT_EQ(data::ImageTransform::reduction(fit, {.augment = false}), 1);
}

TEST(ImageTransform, FitsReducedImageLikeTheWhole) {
  data::ImageDecoder decoder;
  const std::vector<std::byte> jpeg = smooth_jpeg(600, 500, {.quality = 98});
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

/// Size of the whole resized image, and what of it is seen: width x height from x, y.
std::string fit_text(const data::ImageTransform& transform, bool augment, int64_t width, int64_t height) {
  const data::Fit fit = transform.fit(0, {.augment = augment}, width, height);
  return std::to_string(fit.full_width) + "x" + std::to_string(fit.full_height) + " " + std::to_string(fit.width) +
         "x" + std::to_string(fit.height) + " at " + std::to_string(fit.x) + "," + std::to_string(fit.y);
}

TEST(ImageTransform, CoversHeightAndWidthThatDiffer) {
  const data::ImageTransform wide(image_options("size: [32, 64]"), data::Split::train, 0, 0);
  EXPECT_EQ(fit_text(wide, true, 100, 100), "64x64 64x32 at 0,16");
  EXPECT_EQ(fit_text(wide, true, 400, 100), "128x32 64x32 at 32,0");
  EXPECT_EQ(fit_text(wide, false, 64, 32), "64x32 64x32 at 0,0");
  const data::ImageTransform zoomed(image_options("size: [112, 224], augment: {random_resized_crop: [0.1, 1]}"),
                                    data::Split::val, 0, 0);
  EXPECT_EQ(fit_text(zoomed, false, 256, 128), "256x128 224x112 at 16,8");
  const data::ImageTransform cropped(image_options("size: 32, eval: {resize: 40, crop: [20, 30]}"), data::Split::val, 0,
                                     0);
  EXPECT_EQ(fit_text(cropped, false, 80, 160), "40x80 30x20 at 5,30");
  const data::ImageTransform square(image_options("size: 32"), data::Split::train, 0, 0);
  EXPECT_EQ(fit_text(square, true, 100, 50), "64x32 32x32 at 16,0");
  EXPECT_EQ(fit_text(square, true, 33, 100), "32x96 32x32 at 0,32") << "rounded down, as in torchvision";
}

/// Filters of 200 training images, and that of an evaluation: "bilinear 200 bicubic 0, then bilinear".
std::string filters_of(const std::string& image) {
  const data::ImageTransform transform(image_options("size: 32, " + image), data::Split::train, 0, 0);
  int64_t bicubic = 0;
  for (int64_t i = 0; i < 200; ++i) bicubic += transform.fit(i, kTraining, 90, 70).filter == data::Filter::bicubic;
  const bool is_mixed = bicubic > 70 && bicubic < 130;
  const bool evaluates_so = transform.fit(0, {.augment = false}, 90, 70).filter == data::Filter::bicubic;
  return (is_mixed         ? "both"
          : bicubic == 200 ? "bicubic"
          : bicubic == 0   ? "bilinear"
                           : "wrong") +
         std::string(evaluates_so ? " then bicubic" : " then bilinear");
}

TEST(ImageTransform, ResizesWithTheFilterOfTheJob) {
  const std::string crop = ", augment: {random_resized_crop: [0.1, 1]}";
  EXPECT_EQ(filters_of("augment: {hflip: 0.5}"), "bilinear then bilinear");
  EXPECT_EQ(filters_of("interpolation: bicubic"), "bicubic then bicubic");
  EXPECT_EQ(filters_of("interpolation: bicubic" + crop), "bicubic then bicubic");
  EXPECT_EQ(filters_of("interpolation: random" + crop), "both then bilinear");
  EXPECT_EQ(filters_of("interpolation: random, eval: {interpolation: bicubic}"), "both then bicubic");
  EXPECT_EQ(filters_of("interpolation: bicubic, eval: {interpolation: bilinear}"), "bicubic then bilinear");
  EXPECT_EQ(filters_of("eval: {interpolation: bicubic}"), "bilinear then bicubic");
}

TEST(ImageTransform, StretchesCropsByTheGivenRatio) {
  const std::string ratio = ", random_resized_crop_ratio: [1.5, 2]";
  const data::ImageTransform transform(
      image_options("size: 32, augment: {random_resized_crop: [0.1, 0.3]" + ratio + "}"), data::Split::train, 0, 0);
  double least = 9, most = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const data::Fit fit = transform.fit(i, kTraining, 500, 400);
    const double shape = static_cast<double>(fit.right - fit.left) / static_cast<double>(fit.bottom - fit.top);
    least = std::min(least, shape), most = std::max(most, shape);
  }
  EXPECT_NEAR(least, 1.5, 0.02);
  EXPECT_NEAR(most, 2, 0.02);
  const data::Fit tall = transform.fit(0, kTraining, 10, 400);
  EXPECT_TRUE(tall.right - tall.left == 10 && tall.bottom - tall.top == 7) << "falls back to the middle";
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
    transform.recolour(i, kTraining, {pixels.data(), 4, 4, 1});
    inverted += pixels == std::vector<uint8_t>(16, 250);
    transform.recolour(i, {.seed = 9, .epoch = 4, .augment = false}, {pixels.data(), 4, 4, 1});
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
