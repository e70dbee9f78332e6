// Augmentations beside those of Pillow, torchvision and timm.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "../../src/data/images/augment_policy.hpp"
#include "../../src/data/loading/mix_rows.hpp"
#include "datasets/opened.hpp"
#include "support/python_reference.hpp"

namespace gputrain::datasets {
namespace {

using data::Operation;

const std::map<std::string, Operation> kOperationNames{
    {"identity", Operation::identity},         {"shear_x", Operation::shear_x},
    {"shear_y", Operation::shear_y},           {"translate_x", Operation::translate_x},
    {"translate_y", Operation::translate_y},   {"rotate", Operation::rotate},
    {"brightness", Operation::brightness},     {"saturation", Operation::saturation},
    {"contrast", Operation::contrast},         {"sharpness", Operation::sharpness},
    {"posterize", Operation::posterize},       {"solarize", Operation::solarize},
    {"solarize_add", Operation::solarize_add}, {"auto_contrast", Operation::auto_contrast},
    {"equalize", Operation::equalize},         {"invert", Operation::invert}};

std::vector<uint8_t> bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class AugmentReferenceTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    GPUTRAIN_NEED_REFERENCE("torchvision");
    GPUTRAIN_NEED_REFERENCE("timm");
    std::ofstream deviations(path("deviations.txt"));
    deviations.precision(17);
    for (uint64_t i = 0; i < kBlurs; ++i) {
      RandomStream random(kBlurSeed, i);
      random.uniform();  // whether
      deviations << random.uniform(0.1, 2) << "\n";
    }
    deviations.close();
    ASSERT_TRUE(gputrain::testing::run_reference("datasets/augment_reference.py",
                                                 {folder_.string(), with_augmix() ? "augmix" : ""}));
  }

  static bool with_augmix() {
    return std::string_view(::testing::UnitTest::GetInstance()->current_test_info()->name()).starts_with("AugMix");
  }

  static constexpr uint64_t kBlurs = 6, kBlurSeed = 3;

  void check_operation(const std::string& line) const;
};

void AugmentReferenceTest::check_operation(const std::string& line) const {
  std::istringstream words(line);
  std::string name, filter, before, after;
  double argument = 0;
  data::Pixels pixels;
  words >> name >> argument >> filter >> pixels.channels >> pixels.height >> pixels.width >> before >> after;
  std::vector<uint8_t> ours = bytes_of_file(path(before));
  const std::vector<uint8_t> theirs = bytes_of_file(path(after));
  ASSERT_EQ(ours.size(), theirs.size()) << line;
  pixels.values = ours.data();
  const bool is_smooth = filter != "nearest";
  if (name == "hue") {
    data::hue(pixels, argument);
  } else if (name == "grey") {
    data::grey(pixels);
  } else {
    const data::Filter how = !is_smooth             ? data::Filter::nearest
                             : filter == "bilinear" ? data::Filter::bilinear
                                                    : data::Filter::bicubic;
    data::apply({kOperationNames.at(name), argument, how}, pixels,
                is_smooth ? data::Colour{124, 116, 104} : data::Colour{});
  }
  int greatest = 0;
  int64_t differing = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    greatest = std::max(greatest, std::abs(int{ours[i]} - int{theirs[i]}));
    differing += ours[i] != theirs[i];
  }
  EXPECT_LE(greatest, is_smooth ? 1 : 0) << line;
  EXPECT_LE(static_cast<double>(differing), is_smooth ? 0.004 * static_cast<double>(ours.size()) : 0) << line;
}

TEST_F(AugmentReferenceTest, OperationsMatchPillow) {
  std::ifstream cases(path("cases.txt"));
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) check_operation(line);
  EXPECT_GT(count, 200);
}

using Drawn = std::map<Operation, std::vector<double>>;

Drawn drawn_by(const std::string& word, int images) {
  data::PolicyMistake mistake;
  const auto policy = data::policy_of(word, mistake);
  EXPECT_TRUE(policy) << mistake.what;
  Drawn drawn;
  for (int i = 0; policy && i < images; ++i) {
    RandomStream random(7, static_cast<uint64_t>(i));
    for (const data::PixelOperation& each : policy->draw(random, 60, 40))
      drawn[each.operation].push_back(each.argument);
  }
  return drawn;
}

TEST_F(AugmentReferenceTest, PoliciesDrawWhatTimmAndTorchvisionDraw) {
  std::map<std::string, std::map<Operation, std::set<double>>> expected;
  std::ifstream arguments(path("arguments.txt"));
  std::string word, operation;
  for (double argument = 0; arguments >> word >> operation >> argument;)
    expected[word][kOperationNames.at(operation)].insert(argument);
  std::map<std::string, std::map<Operation, double>> rates;
  std::ifstream rate_lines(path("rates.txt"));
  for (double rate = 0; rate_lines >> word >> operation >> rate;)
    if (kOperationNames.contains(operation)) rates[word][kOperationNames.at(operation)] = rate;
  EXPECT_EQ(expected.size(), 8U);
  constexpr int kDrawn = 20000;
  for (const auto& [policy, operations] : expected) {
    const Drawn drawn = drawn_by(policy, kDrawn);
    EXPECT_EQ(drawn.size(), operations.size()) << policy;
    for (const auto& [which, values] : drawn) {
      const std::string name = policy + " operation " + std::to_string(static_cast<int>(which));
      ASSERT_TRUE(operations.contains(which)) << name;
      const std::set<double>& allowed = operations.at(which);
      std::set<double> met;
      for (const double value : values) {
        const auto near = std::ranges::find_if(allowed, [&](double a) { return std::abs(a - value) < 1e-6; });
        ASSERT_NE(near, allowed.end()) << name << " got " << value;
        met.insert(*near);
      }
      EXPECT_EQ(met.size(), allowed.size()) << name;
      const double rate = rates[policy][which];
      EXPECT_NEAR(static_cast<double>(values.size()) / kDrawn, rate, 5 * std::sqrt(rate / kDrawn) + 1e-4) << name;
    }
  }
}

TEST_F(AugmentReferenceTest, LevelsVaryAsInTimm) {
  std::map<std::string, std::map<std::string, double>> expected;
  std::ifstream lines(path("rates.txt"));
  std::string word, name;
  for (double value = 0; lines >> word >> name >> value;)
    if (name == "mean" || name == "deviation") expected[word][name] = value;
  EXPECT_EQ(expected.size(), 4U);
  for (const auto& [policy, moments] : expected) {
    std::vector<double> angles = drawn_by(policy, 30000).at(Operation::rotate);
    double sum = 0, squares = 0;
    for (const double angle : angles) {
      sum += std::abs(angle);
      squares += angle * angle;
    }
    const double mean = sum / static_cast<double>(angles.size());
    EXPECT_NEAR(mean, moments.at("mean"), 0.35) << policy;
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(angles.size()) - mean * mean), moments.at("deviation"), 0.25)
        << policy;
  }
}

TEST_F(AugmentReferenceTest, AugMixChangesImagesAsMuchAsInTimm) {
  const std::vector<uint8_t> image = bytes_of_file(path("augmix.before"));
  std::map<std::string, std::map<std::string, double>> expected;
  std::ifstream lines(path("rates.txt"));
  std::string word, name;
  for (double value = 0; lines >> word >> name >> value;)
    if (word.starts_with("change-")) expected[word.substr(7)][name] = value;
  EXPECT_EQ(expected.size(), 3U);
  for (const auto& [policy_word, moments] : expected) {
    data::PolicyMistake mistake;
    const auto policy = data::policy_of(policy_word, mistake);
    ASSERT_TRUE(policy) << mistake.what;
    double sum = 0, squares = 0;
    constexpr int kTries = 3000;
    for (int i = 0; i < kTries; ++i) {
      std::vector<uint8_t> changed = image;
      RandomStream random(11, static_cast<uint64_t>(i));
      policy->change(random, {.values = changed.data(), .width = 60, .height = 40, .channels = 3}, {124, 116, 104});
      double distance = 0;
      for (size_t p = 0; p < image.size(); ++p) distance += std::abs(int{changed[p]} - int{image[p]});
      distance /= static_cast<double>(image.size());
      sum += distance, squares += distance * distance;
    }
    const double mean = sum / kTries, deviation = std::sqrt(squares / kTries - mean * mean);
    EXPECT_NEAR(mean, moments.at("change"), 5 * deviation / std::sqrt(kTries)) << policy_word;
    EXPECT_NEAR(deviation, moments.at("deviation_of_change"), 0.1 * deviation) << policy_word;
  }
}

TEST_F(AugmentReferenceTest, PartsOfMixedImagesVaryAsInTimm) {
  std::map<std::string, double> expected;
  std::ifstream lines(path("rates.txt"));
  std::string word, name;
  for (double value = 0; lines >> word >> name >> value;) expected[word + name] = value;
  for (const auto& [key, options] :
       std::map<std::string, data::MixOptions>{{"mix-0.8-0.0", {.mixup = 0.8, .probability = 0.9}},
                                               {"mix-0.0-1.0", {.cutmix = 1, .probability = 0.9}},
                                               {"mix-0.2-1.0", {.mixup = 0.2, .cutmix = 1, .probability = 0.9}}}) {
    double sum = 0, squares = 0;
    constexpr int kMicroBatches = 20000;
    for (int i = 0; i < kMicroBatches; ++i) {
      RandomStream random(1, static_cast<uint64_t>(i));
      const data::Mixing mixing = data::draw_mixing(options, random, 24, 36);
      ASSERT_TRUE(mixing.part >= 0 && mixing.part <= 1);
      sum += mixing.part;
      squares += mixing.part * mixing.part;
    }
    const double mean = sum / kMicroBatches;
    EXPECT_NEAR(mean, expected.at(key + "part"), 0.015) << key;
    EXPECT_NEAR(std::sqrt(squares / kMicroBatches - mean * mean), expected.at(key + "part_deviation"), 0.01) << key;
  }
}

TEST_F(AugmentReferenceTest, BlursAsTorchvision) {
  const data::ImageOptions options = augmented("gaussian_blur: 1");
  const auto active = options.augment.active();
  ASSERT_EQ(active.size(), 1U);
  for (uint64_t i = 0; i < kBlurs; ++i) {
    const std::string file = "blur" + std::to_string(i);
    std::vector<uint8_t> ours = bytes_of_file(path(file + ".before"));
    const std::vector<uint8_t> theirs = bytes_of_file(path(file + ".after"));
    RandomStream random(kBlurSeed, i);
    active[0].augmentation->recolour(random, {.values = ours.data(), .width = 45, .height = 31, .channels = 3});
    ASSERT_EQ(ours.size(), theirs.size());
    int64_t differing = 0;
    for (size_t p = 0; p < ours.size(); ++p) {
      EXPECT_LE(std::abs(int{ours[p]} - int{theirs[p]}), 1);
      differing += ours[p] != theirs[p];
    }
    EXPECT_LE(differing, 4) << "sums that lie halfway between two bytes";
  }
}

}  // namespace
}  // namespace gputrain::datasets
