#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/data/loading/mix_rows.hpp"
#include "datasets/jpegs.hpp"
#include "datasets/opened.hpp"
#include "gputrain/data/image_transform.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/data/preprocess.hpp"

namespace gputrain::datasets {
namespace {

using ::testing::HasSubstr;

std::string augment_refusal(const std::string& augment) {
  return error_of([&] { augmented(augment); }, ExitCode::usage);
}

TEST(AutoAugment, SaysWhatIsWrongInAWord) {
  EXPECT_THAT(augment_refusal("auto_augment: rant-m9"), HasSubstr("'rant-m9' is not a known policy"));
  EXPECT_THAT(augment_refusal("auto_augment: rant-m9"),
              HasSubstr("rand-m9-mstd0.5-inc1 (RandAugment), augmix-m3-w3 (AugMix) or trivial"));
  EXPECT_THAT(augment_refusal("auto_augment: rand-m9-x3"), HasSubstr("'x3' in 'rand-m9-x3' is not understood"));
  EXPECT_THAT(augment_refusal("auto_augment: rand-m9-x3"), HasSubstr("possible are m9 (level), n2"));
  EXPECT_THAT(augment_refusal("auto_augment: rand-m9-mstd"), HasSubstr("'mstd' in"));
  EXPECT_THAT(augment_refusal("auto_augment: rand-m9.5"), HasSubstr("'m9.5' in"));
  EXPECT_THAT(augment_refusal("auto_augment: rand-m9-p2"), HasSubstr("'p2' in"));
  EXPECT_THAT(augment_refusal("auto_augment: rand-m9-"), HasSubstr("'' in"));
  EXPECT_THAT(augment_refusal("auto_augment: augmix-m3-n2"), HasSubstr("'n2' in 'augmix-m3-n2' is not understood"));
  EXPECT_THAT(augment_refusal("auto_augment: augmix-m3-n2"), HasSubstr("possible are m3 (level), w3 (chains)"));
  EXPECT_THAT(augment_refusal("auto_augment: original"), HasSubstr("'original' is not a known policy"));
  EXPECT_THAT(augment_refusal("auto_augment: trivial-m9"), HasSubstr("is not a known policy"));
}

TEST(Augmentations, RefuseOptionsThatMakeNoSense) {
  EXPECT_THAT(augment_refusal("random_erasing: {probability: 0.5, area: [0.5, 0.1]}"), HasSubstr("in this order"));
  EXPECT_THAT(augment_refusal("random_erasing: {probability: 0.5, mode: red}"), HasSubstr("const"));
  EXPECT_THAT(augment_refusal("color_jitter: [0.1, 0.2]"), HasSubstr("give one number, or three, or four"));
  EXPECT_THAT(augment_refusal("color_jitter: [0.1, 0.2, 0.3, 0.6]"), HasSubstr("half a turn"));
  EXPECT_THAT(augment_refusal("vflip: 1.5"), HasSubstr("vflip"));
  EXPECT_THAT(augment_refusal("random_resized_crop: [0.1, 1], random_resized_crop_ratio: [2, 1]"),
              HasSubstr("in this order"));
  EXPECT_THAT(augment_refusal("random_resized_crop_ratio: [1, 2]"), HasSubstr("there is no random_resized_crop"));
  EXPECT_THAT(augment_refusal("color_jitter_probability: 0.5"), HasSubstr("there is no color_jitter"));
  EXPECT_THAT(augment_refusal("repeats: 0"), HasSubstr("repeats"));
}

TEST(Augmentations, AreOffByDefaultAndOnWhenSet) {
  EXPECT_TRUE(augmented("").augment.active().empty());
  EXPECT_FALSE(augmented("").augment.mix.is_on());
  EXPECT_FALSE(augmented("mix: {mixup: 0.8, probability: 0}").augment.mix.is_on());
  EXPECT_TRUE(augmented("mix: {cutmix: 1.0}").augment.mix.is_on());
  const auto names = [](const std::string& augment) {
    std::vector<std::string> found;
    for (const auto& [name, augmentation] : augmented(augment).augment.active()) found.push_back(name);
    return found;
  };
  EXPECT_EQ(names("random_erasing: {probability: 0}, color_jitter: 0, grayscale: 0, auto_augment: null"),
            std::vector<std::string>{});
  EXPECT_EQ(
      names("random_erasing: {probability: 0.1}, grayscale: 0.1, color_jitter: 0.4, auto_augment: trivial, "
            "vflip: 0.5, hflip: 0.5"),
      (std::vector<std::string>{"hflip", "vflip", "auto_augment", "color_jitter", "grayscale", "random_erasing"}));
}

constexpr data::ReadContext kAugmenting{.seed = 5, .epoch = 1, .augment = true};

/// Images of one value, changed.
std::vector<std::vector<uint8_t>> changed_images(const std::string& augment, int count, std::vector<uint8_t> image,
                                                 const data::Normalization& statistics) {
  const data::ImageTransform transform(augmented(augment), data::Split::train, 0, 0);
  std::vector<std::vector<uint8_t>> images(static_cast<size_t>(count), image);
  for (int i = 0; i < count; ++i)
    transform.recolour(i, kAugmenting, {images[static_cast<size_t>(i)].data(), 32, 32, 3, &statistics});
  return images;
}

const data::Normalization kStatistics{{0.4, 0.5, 0.6}, {0.08, 0.1, 0.05}};

TEST(RandomErasing, FillsRectanglesOfTheGivenAreaWithTheMean) {
  const auto images =
      changed_images("random_erasing: {probability: 0.6}", 4000, std::vector<uint8_t>(32 * 32 * 3, 1), kStatistics);
  double area = 0, erased = 0, shape = 0;
  for (const auto& image : images) {
    int64_t left = 32, right = -1, top = 32, bottom = -1, count = 0;
    for (int64_t i = 0; i < 32 * 32; ++i) {
      const uint8_t* pixel = image.data() + 3 * i;
      if (pixel[0] == 1) continue;
      ASSERT_TRUE(pixel[0] == 102 && pixel[1] == 128 && pixel[2] == 153);  // 0 when normalised, but for the rounding
      left = std::min(left, i % 32), right = std::max(right, i % 32);
      top = std::min(top, i / 32), bottom = std::max(bottom, i / 32);
      ++count;
    }
    if (count == 0) continue;
    ASSERT_EQ(count, (right - left + 1) * (bottom - top + 1)) << "a rectangle";
    ++erased;
    area += static_cast<double>(count) / (32 * 32);
    shape += std::log(static_cast<double>(bottom - top + 1) / static_cast<double>(right - left + 1));
  }
  // The means of 20,000 draws of timm's RandomErasing(1) for this size.
  EXPECT_NEAR(erased / 4000, 0.6, 0.03);
  EXPECT_NEAR(area / erased, 0.1761, 0.008);
  EXPECT_NEAR(shape / erased, 0, 0.06);
}

TEST(RandomErasing, FillsWithRandomColoursOfTheGivenStatistics) {
  for (const std::string mode : {"rand", "pixel"}) {
    const auto images = changed_images("random_erasing: {probability: 1, mode: " + mode + ", area: [0.2, 0.3]}", 1500,
                                       std::vector<uint8_t>(32 * 32 * 3, 0), kStatistics);
    std::array<double, 3> sum{}, squares{}, count{};
    int with_many_colours = 0;
    for (const auto& image : images) {
      std::set<uint8_t> greens;
      for (size_t i = 0; i < image.size(); ++i) {
        if (image[i] == 0) continue;
        const double value = (image[i] / 255.0 - kStatistics.mean[i % 3]) / kStatistics.std[i % 3];
        sum[i % 3] += value;
        squares[i % 3] += value * value;
        ++count[i % 3];
        if (i % 3 == 1) greens.insert(image[i]);
      }
      with_many_colours += greens.size() > 20;
    }
    EXPECT_EQ(with_many_colours, mode == "pixel" ? 1500 : 0);
    const double tolerance = mode == "pixel" ? 0.02 : 0.09;
    for (size_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(sum[c] / count[c], 0, tolerance) << mode << c;
      EXPECT_NEAR(squares[c] / count[c], 1, 3 * tolerance) << mode << c;
    }
  }
}

TEST(RandomErasing, SharesTheAreaAmongSeveralRectangles) {
  const auto images = changed_images("random_erasing: {probability: 1, count: 4, area: [0.2, 0.2]}", 500,
                                     std::vector<uint8_t>(32 * 32 * 3, 1), kStatistics);
  for (const auto& image : images) {
    const auto erased = std::ranges::count_if(image, [](uint8_t value) { return value != 1; });
    EXPECT_LE(erased, 0.24 * 32 * 32 * 3);
    EXPECT_GE(erased, 0.04 * 32 * 32 * 3);
  }
}

TEST(ColorJitter, ChangesEachPropertyWithinItsRange) {
  std::vector<uint8_t> image(32 * 32 * 3, 100);
  double least = 255, most = 0;
  for (const auto& changed : changed_images("color_jitter: [0.4, 0, 0]", 800, image, kStatistics)) {
    ASSERT_EQ(std::ranges::count(changed, changed[0]), std::ssize(changed));
    least = std::min(least, static_cast<double>(changed[0]));
    most = std::max(most, static_cast<double>(changed[0]));
  }
  EXPECT_NEAR(least, 60, 1);
  EXPECT_NEAR(most, 139, 1);
  for (size_t i = 0; i < image.size(); i += 3) image[i] = 180;
  for (const auto& changed : changed_images("color_jitter: [0, 0, 0, 0.5]", 20, image, kStatistics)) {
    const auto [low, high] = std::minmax({changed[0], changed[1], changed[2]});
    EXPECT_NEAR(high, 180, 1) << "hue keeps the largest value";
    EXPECT_NEAR(low, 100, 2);
  }
  std::vector<uint8_t> unchanged(32 * 32 * 3, 100);
  const auto some =
      changed_images("color_jitter: [0.4, 0, 0], color_jitter_probability: 0.25", 800, unchanged, kStatistics);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(some, unchanged)), 600, 60);
  const auto grey = changed_images("grayscale: 0.5", 200, image, kStatistics);
  const auto is_grey = [](const auto& each) { return each[0] == each[1]; };
  EXPECT_NEAR(static_cast<double>(std::ranges::count_if(grey, is_grey)), 100, 35);
}

TEST(AutoAugment, MovesPixelsWithTheFilterOfTheJob) {
  std::vector<uint8_t> image(32 * 32 * 3);
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<uint8_t>(i * i >> 5);
  const auto with_filter = [&](const std::string& interpolation, int index) {
    auto options = augmented("auto_augment: rand-m9-p1");
    if (!interpolation.empty()) options.interpolation.value = interpolation;
    const data::ImageTransform transform(options, data::Split::train, 0, 0);
    std::vector<uint8_t> changed = image;
    transform.recolour(index, kAugmenting, {changed.data(), 32, 32, 3, &kStatistics});
    return changed;
  };
  int as_bilinear = 0, as_bicubic = 0, moved = 0;
  for (int i = 0; i < 200; ++i) {
    const auto bilinear = with_filter("bilinear", i), bicubic = with_filter("bicubic", i), drawn = with_filter("", i);
    EXPECT_EQ(drawn, with_filter("random", i));
    if (bilinear == bicubic) continue;
    ++moved;
    as_bilinear += drawn == bilinear;
    as_bicubic += drawn == bicubic;
  }
  EXPECT_GT(moved, 60);
  EXPECT_GT(as_bilinear, moved / 5);
  EXPECT_GT(as_bicubic, moved / 5);
}

TEST(Vflip, TurnsImagesUpsideDown) {
  std::vector<uint8_t> image(32 * 32 * 3);
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<uint8_t>(i / 96);
  const auto flipped = changed_images("vflip: 0.5", 400, image, kStatistics);
  std::vector<uint8_t> upside_down(image.rbegin(), image.rend());
  EXPECT_NEAR(static_cast<double>(std::ranges::count(flipped, upside_down)), 200, 45);
  EXPECT_EQ(std::ranges::count(flipped, upside_down) + std::ranges::count(flipped, image), 400);
}

class AugmentedLoadingTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    for (int i = 0; i < 12; ++i) {
      const std::vector<std::byte> jpeg = smooth_jpeg(40 + i, 50);
      write("class" + std::to_string(i % 2) + "/" + std::to_string(i) + ".jpg",
            {reinterpret_cast<const char*>(jpeg.data()), jpeg.size()});
    }
  }

  /// Steps of 5 samples, the last of an epoch of 2.
  std::vector<Batch> batches(int workers, const data::MixOptions& mix, int64_t steps) const {
    const auto datasets = open("{train: {path: " + folder_.string() + ", format: imagefolder}, image: {size: 24}}");
    data::LoaderOptions options;
    options.partition = {.global_batch = 5, .micro_batch = 5};
    options.num_workers = workers;
    options.mix = mix;
    data::Loader loader(datasets.train, options);
    std::vector<Batch> all;
    for (int64_t step = 0; step < steps; ++step) all.push_back(loader.next_step().micro_batches.at(0));
    return all;
  }
};

/// Checks row `row` of a mixed batch against rows of the batch as it is without mixing; returns the part of values that
/// are those of the other row.
double check_mixed_row(const Batch& mixed, const Batch& plain, int64_t row, int64_t partner, bool cuts) {
  const double part = mixed.tensor(data::kMixedPart)[row].item<double>();
  const at::Tensor ours = mixed.input()[row].contiguous(), own = plain.input()[row].contiguous();
  const at::Tensor other = plain.input()[partner].contiguous();
  const auto *a = own.const_data_ptr<uint8_t>(), *b = other.const_data_ptr<uint8_t>();
  const auto* got = ours.const_data_ptr<uint8_t>();
  double from_other = 0;
  for (int64_t i = 0; i < ours.numel(); ++i) {
    if (cuts) {
      EXPECT_TRUE(got[i] == a[i] || got[i] == b[i]);
      from_other += got[i] != a[i];
    } else {
      EXPECT_NEAR(got[i], part * a[i] + (1 - part) * b[i], 0.501);
    }
  }
  return from_other / static_cast<double>(ours.numel());
}

TEST_F(AugmentedLoadingTest, MixesEachImageWithItsPartnerOfTheMicroBatch) {
  for (const bool cuts : {false, true}) {
    const data::MixOptions mix = cuts ? data::MixOptions{.cutmix = 1} : data::MixOptions{.mixup = 1};
    const std::vector<Batch> mixed = batches(0, mix, 6), plain = batches(0, {}, 6);
    for (size_t b = 0; b < mixed.size(); ++b) {
      const int64_t counted = mixed[b].samples, rows = mixed[b].input().size(0);
      EXPECT_EQ(plain[b].find(data::kMixedPart), nullptr);
      EXPECT_EQ(mixed[b].weight, plain[b].weight);
      EXPECT_TRUE(mixed[b].tensor(kTarget).equal(plain[b].tensor(kTarget)));
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t partner = row < counted ? counted - 1 - row : row;
        const double part = mixed[b].tensor(data::kMixedPart)[row].item<double>();
        const int64_t other = mixed[b].tensor(data::kMixedTarget)[row].item<int64_t>();
        EXPECT_EQ(other, row < counted ? plain[b].tensor(kTarget)[partner].item<int64_t>() : kIgnoreIndex);
        if (row >= counted) continue;
        const double replaced = check_mixed_row(mixed[b], plain[b], row, partner, cuts);
        EXPECT_LE(replaced, 1 - part + 1e-9) << "a rectangle of this part";
      }
    }
  }
}

TEST_F(AugmentedLoadingTest, MixesNoMoreFromTheOffEpochOn) {
  const std::vector<Batch> some = batches(2, {.mixup = 1, .off_epoch = 1}, 9), all = batches(2, {.mixup = 1}, 9);
  const std::vector<Batch> none = batches(2, {}, 9);
  for (size_t b = 0; b < some.size(); ++b) {  // an epoch has three
    EXPECT_TRUE(some[b].input().equal(b < 3 ? all[b].input() : none[b].input())) << b;
    EXPECT_EQ(some[b].tensor(data::kMixedPart)[0].item<double>() == 1, b >= 3) << b;
  }
}

TEST_F(AugmentedLoadingTest, RepeatsEachImageWithOtherChanges) {
  const auto datasets = open("{train: {path: " + folder_.string() +
                             ", format: imagefolder}, image: {size: 24, augment: {random_resized_crop: [0.1, 0.5]}}}");
  data::LoaderOptions options;
  options.partition = {.global_batch = 12, .micro_batch = 12};
  options.repeats = 3;
  data::Loader loader(datasets.train, options);
  std::set<std::vector<uint8_t>> seen;
  for (int epoch = 0; epoch < 2; ++epoch) {
    const Batch batch = loader.next_step().micro_batches.at(0);
    for (int64_t row = 0; row < 12; ++row) {
      const at::Tensor image = batch.input()[row].contiguous();
      seen.emplace(image.const_data_ptr<uint8_t>(), image.const_data_ptr<uint8_t>() + image.numel());
    }
  }
  EXPECT_EQ(seen.size(), 24U);
}

TEST_F(AugmentedLoadingTest, MixesAlikeForAnyNumberOfWorkers) {
  const data::MixOptions mix{.mixup = 0.8, .cutmix = 1, .probability = 0.8};
  const std::vector<Batch> expected = batches(0, mix, 9);
  std::set<double> parts;
  for (const Batch& batch : expected) parts.insert(batch.tensor(data::kMixedPart)[0].item<double>());
  EXPECT_GE(parts.size(), 5U) << "each micro-batch draws its own";
  for (const int workers : {1, 4}) {
    const std::vector<Batch> found = batches(workers, mix, 9);
    for (size_t b = 0; b < found.size(); ++b)
      for (size_t f = 0; f < found[b].fields.size(); ++f)
        EXPECT_TRUE(found[b].fields[f].values.equal(expected[b].fields[f].values)) << workers << " " << b << " " << f;
  }
}

TEST_F(AugmentedLoadingTest, GivesTheSameBatchesForAnyNumberOfWorkersAndRanks) {
  const auto datasets =
      open("{train: {path: " + folder_.string() +
           ", format: imagefolder}, image: {size: 24, augment: {random_resized_crop: [0.3, 1.0], vflip: 0.5, "
           "auto_augment: rand-m9-mstd0.5-inc1, color_jitter: 0.3, random_erasing: {probability: 0.5, mode: pixel}}}}");
  const auto images = [&](int workers, int64_t micro_batch) {
    data::LoaderOptions options;
    options.partition = {.global_batch = 12, .micro_batch = micro_batch};
    options.num_workers = workers;
    options.shuffle = options.augment = true;
    data::Loader loader(datasets.train, options);
    std::vector<uint8_t> all;
    for (int step = 0; step < 3; ++step)
      for (const Batch& batch : loader.next_step().micro_batches) {
        const at::Tensor input = batch.input().contiguous();
        const auto* values = input.const_data_ptr<uint8_t>();
        all.insert(all.end(), values, values + input.numel());
      }
    return all;
  };
  const std::vector<uint8_t> expected = images(0, 12);
  EXPECT_EQ(images(1, 12), expected);
  EXPECT_EQ(images(4, 12), expected);
  EXPECT_EQ(images(2, 4), expected);
}

}  // namespace
}  // namespace gputrain::datasets
