// Changes of colour like torchvision's ColorJitter.
#include <algorithm>
#include <array>
#include <utility>

#include "../pixel_ops.hpp"

namespace gputrain::data {
namespace {

struct ColorJitterSpec {
  config::OneOrMore<double> strengths;
  double probability = 1;

  static void describe(config::Description<ColorJitterSpec>& d) {
    d.key("color_jitter", &ColorJitterSpec::strengths,
          "random brightness, contrast and saturation: factors of 1 plus or minus up to this; a list has a number for "
          "each, and may have a fourth for hue, in full turns. It acts beside auto_augment, where timm leaves it out")
        .elements(0, 4)
        .at_least(0);
    d.key("color_jitter_probability", &ColorJitterSpec::probability, "probability that an image is changed so")
        .range(0, 1)
        .aliases({"color_jitter_prob"});
    d.check([](const ColorJitterSpec& spec, config::SpecIssues& issues) {
      const auto& strengths = spec.strengths.values;
      if (strengths.empty() && spec.probability < 1)
        issues.add("color_jitter_probability", "there is no color_jitter", "color_jitter: 0.4");
      if (strengths.size() == 2)
        issues.add("color_jitter", "give one number, or three, or four", "color_jitter: [0.4, 0.4, 0.4]");
      if (strengths.size() == 4 && strengths[3] > 0.5)
        issues.add("color_jitter", "hue turns by at most 0.5, half a turn", "color_jitter: [0.4, 0.4, 0.4, 0.1]");
    });
  }
};

class ColorJitter final : public Augmentation {
 public:
  explicit ColorJitter(const ColorJitterSpec& spec) : probability_(spec.probability) {
    const auto& given = spec.strengths.values;
    if (given.size() == 1) std::fill_n(strengths_.begin(), 3, given[0]);
    if (given.size() > 2) std::ranges::copy(given, strengths_.begin());
  }

  bool is_on() const override {
    return probability_ > 0 && std::ranges::any_of(strengths_, [](double strength) { return strength > 0; });
  }
  int order() const override { return 50; }

  void recolour(RandomStream& random, const Pixels& pixels) const override {
    if (probability_ < 1 && random.uniform() >= probability_) return;
    std::array<size_t, 4> parts{0, 1, 2, 3};
    for (size_t i = parts.size(); i > 1; --i)
      std::swap(parts[i - 1], parts[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
    for (const size_t part : parts) {
      const double strength = strengths_[part];
      if (strength == 0) continue;
      if (part == kHue) {
        hue(pixels, random.uniform(-strength, strength));
      } else {
        kChanges[part](pixels, random.uniform(std::max(0.0, 1 - strength), 1 + strength));
      }
    }
  }

 private:
  static constexpr std::array kChanges{brightness, contrast, saturation};
  static constexpr size_t kHue = 3;

  double probability_;
  std::array<double, 4> strengths_{};  // brightness, contrast, saturation, hue
};

const config::Registered<ColorJitter, ColorJitterSpec> registered_color_jitter{
    augmentations(), "color_jitter", "random brightness, contrast, saturation and hue"};

}  // namespace
}  // namespace gputrain::data
