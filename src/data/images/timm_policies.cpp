// RandAugment (Cubuk et al., arXiv:1909.13719) and AugMix (Hendrycks et al., arXiv:1912.02781) like timm's: levels of 0
// to 10, bilinear or bicubic by chance, the mean colour outside.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "../draw_beta.hpp"
#include "augment_policy.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::data {
namespace {

constexpr double kMostLevel = 10;

struct Drawing {
  RandomStream& random;
  double width, height;
  double translation = 0.45;  // fraction of the image by which it moves at most

  double with_any_sign(double value) const { return random.below(2) == 0 ? -value : value; }
};

/// An operation under timm's name, and its argument at level * 10.
struct TimmOperation {
  std::string_view name;
  Operation operation;
  double (*argument)(double level, const Drawing& drawing);
};

double no_argument(double, const Drawing&) { return 0; }
double sheared(double level, const Drawing& drawing) { return drawing.with_any_sign(0.3 * level); }
double enhanced(double level, const Drawing&) { return 1.8 * level + 0.1; }
double enhanced_away(double level, const Drawing& drawing) {
  return std::max(0.1, 1 + drawing.with_any_sign(0.9 * level));
}

constexpr std::array<TimmOperation, 21> kTimmOperations{{
    {"AutoContrast", Operation::auto_contrast, no_argument},
    {"Equalize", Operation::equalize, no_argument},
    {"Invert", Operation::invert, no_argument},
    {"Rotate", Operation::rotate, [](double level, const Drawing& d) { return d.with_any_sign(30 * level); }},
    {"Posterize", Operation::posterize, [](double level, const Drawing&) { return std::trunc(4 * level); }},
    {"PosterizeIncreasing", Operation::posterize,
     [](double level, const Drawing&) { return 4 - std::trunc(4 * level); }},
    {"Solarize", Operation::solarize,
     [](double level, const Drawing&) { return std::min(256.0, std::trunc(256 * level)); }},
    {"SolarizeIncreasing", Operation::solarize,
     [](double level, const Drawing&) { return 256 - std::min(256.0, std::trunc(256 * level)); }},
    {"SolarizeAdd", Operation::solarize_add,
     [](double level, const Drawing&) { return std::min(128.0, std::trunc(110 * level)); }},
    {"Color", Operation::saturation, enhanced},
    {"ColorIncreasing", Operation::saturation, enhanced_away},
    {"Contrast", Operation::contrast, enhanced},
    {"ContrastIncreasing", Operation::contrast, enhanced_away},
    {"Brightness", Operation::brightness, enhanced},
    {"BrightnessIncreasing", Operation::brightness, enhanced_away},
    {"Sharpness", Operation::sharpness, enhanced},
    {"SharpnessIncreasing", Operation::sharpness, enhanced_away},
    {"ShearX", Operation::shear_x, sheared},
    {"ShearY", Operation::shear_y, sheared},
    {"TranslateXRel", Operation::translate_x,
     [](double level, const Drawing& d) { return d.with_any_sign(d.translation * level) * d.width; }},
    {"TranslateYRel", Operation::translate_y,
     [](double level, const Drawing& d) { return d.with_any_sign(d.translation * level) * d.height; }},
}};

const TimmOperation& timm_operation(std::string_view name) {
  const auto* const found = std::ranges::find(kTimmOperations, name, &TimmOperation::name);
  GPUTRAIN_ASSERT(found != kTimmOperations.end(), "no operation '" + std::string(name) + "'");
  return *found;
}

/// Deviation of levels, and the highest one.
struct Levels {
  double deviation = 0;  // infinite: uniform, from 0 to the level
  double most = kMostLevel;

  double draw(double level, RandomStream& random) const {
    if (std::isinf(deviation)) level *= random.uniform();
    if (deviation > 0 && !std::isinf(deviation)) level += deviation * draw_normal(random);
    return std::clamp(level, 0.0, most);
  }
};

PixelOperation draw_operation(const TimmOperation& operation, double level, const Levels& levels,
                              const Drawing& drawing) {
  const double drawn = levels.draw(level, drawing.random) / kMostLevel;
  return {operation.operation, operation.argument(drawn, drawing),
          drawing.random.below(2) == 0 ? Filter::bilinear : Filter::bicubic};
}

struct RandOptions {
  double level = kMostLevel, probability = 0.5;
  int64_t count = 2;
  bool increases = false;
  Levels levels;
};

class TimmRandAugment final : public AugmentPolicy {
 public:
  explicit TimmRandAugment(const RandOptions& options) : options_(options) {}

  std::vector<PixelOperation> draw(RandomStream& random, int64_t width, int64_t height) const override {
    constexpr std::array<std::array<std::string_view, 15>, 2> kNames{
        {{"AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast",
          "Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"},
         {"AutoContrast", "Equalize", "Invert", "Rotate", "PosterizeIncreasing", "SolarizeIncreasing", "SolarizeAdd",
          "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing", "ShearX", "ShearY",
          "TranslateXRel", "TranslateYRel"}}};
    const auto& names = kNames[options_.increases ? 1 : 0];
    const Drawing drawing{random, static_cast<double>(width), static_cast<double>(height)};
    std::vector<PixelOperation> operations;
    for (int64_t i = 0; i < options_.count; ++i) {
      const std::string_view name = names[static_cast<size_t>(random.below(std::ssize(names)))];
      if (random.uniform() < options_.probability)
        operations.push_back(draw_operation(timm_operation(name), options_.level, options_.levels, drawing));
    }
    return operations;
  }
  bool shows_mean_outside() const override { return true; }

 private:
  RandOptions options_;
};

struct AugMixOptions {
  int64_t level = 3, width = 3, depth = 0;  // depth 0: 1 to 3, drawn for each chain
  double alpha = 1;
  Levels levels{.deviation = std::numeric_limits<double>::infinity()};
};

class TimmAugMix final : public AugmentPolicy {
 public:
  explicit TimmAugMix(const AugMixOptions& options) : options_(options) {}

  /// Draws one of its chains.
  std::vector<PixelOperation> draw(RandomStream& random, int64_t width, int64_t height) const override {
    constexpr std::array<std::string_view, 13> kNames{
        "AutoContrast", "ColorIncreasing", "ContrastIncreasing",  "BrightnessIncreasing", "SharpnessIncreasing",
        "Equalize",     "Rotate",          "PosterizeIncreasing", "SolarizeIncreasing",   "ShearX",
        "ShearY",       "TranslateXRel",   "TranslateYRel"};
    const Drawing drawing{random, static_cast<double>(width), static_cast<double>(height), 0.3};
    const int64_t depth = options_.depth > 0 ? options_.depth : 1 + random.below(3);
    std::vector<PixelOperation> chain;
    for (int64_t i = 0; i < depth; ++i) {
      const std::string_view name = kNames[static_cast<size_t>(random.below(std::ssize(kNames)))];
      chain.push_back(
          draw_operation(timm_operation(name), static_cast<double>(options_.level), options_.levels, drawing));
    }
    return chain;
  }

  /// Mixes chains by a Dirichlet distribution, and the image with them by a beta distribution.
  void change(RandomStream& random, const Pixels& pixels, const Colour& outside) const override {
    const auto count = static_cast<size_t>(pixels.width * pixels.height * pixels.channels);
    const std::vector<float> shares = draw_shares(random);
    const auto part = static_cast<float>(draw_beta(random, options_.alpha));
    thread_local std::vector<uint8_t> changed;
    thread_local std::vector<float> mixed;
    mixed.assign(count, 0);
    for (const float share : shares) {
      changed.assign(pixels.values, pixels.values + count);
      Pixels copy = pixels;
      copy.values = changed.data();
      AugmentPolicy::change(random, copy, outside);
      for (size_t i = 0; i < count; ++i) mixed[i] += share * static_cast<float>(changed[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      const auto own = static_cast<float>(pixels.values[i]), other = std::floor(std::clamp(mixed[i], 0.0f, 255.0f));
      pixels.values[i] = static_cast<uint8_t>(own + part * (other - own));
    }
  }
  bool shows_mean_outside() const override { return true; }

 private:
  std::vector<float> draw_shares(RandomStream& random) const {
    std::vector<double> logarithms;
    for (int64_t i = 0; i < options_.width; ++i) logarithms.push_back(log_gamma_draw(random, options_.alpha));
    const double greatest = *std::ranges::max_element(logarithms);
    double sum = 0;
    for (double& one : logarithms) sum += one = std::exp(one - greatest);
    std::vector<float> shares;
    for (const double one : logarithms) shares.push_back(static_cast<float>(one / sum));
    return shares;
  }

  AugMixOptions options_;
};

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [end, mistake] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (mistake != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

constexpr double kMostDeviation = 100;  // more means uniform

/// Parts of a word after its first, as key and value.
class PolicyWord {
 public:
  PolicyWord(const std::string& word, PolicyMistake& mistake) : word_(word), mistake_(mistake) {
    size_t begin = word.find('-');
    name_ = word.substr(0, begin);
    while (begin != std::string::npos) {
      const size_t end = word.find('-', begin + 1);
      const std::string part = word.substr(begin + 1, end == std::string::npos ? end : end - begin - 1);
      const size_t digits = std::min(part.find_first_of("0123456789."), part.size());
      parts_.push_back({part.substr(0, digits), part.substr(digits)});
      begin = end;
    }
  }

  const std::string& name() const { return name_; }

  /// Calls `take(key, value)` for each part; it returns false if it cannot take it.
  template <class Take>
  bool each_part(const std::string& possible, const Take& take) {
    for (const auto& [key, value] : parts_)
      if (!take(key, value)) {
        mistake_ = {"'" + key + value + "' in '" + word_ + "' is not understood", "possible are " + possible};
        return false;
      }
    return true;
  }

 private:
  struct Part {
    std::string key, value;
  };
  std::string word_, name_;
  std::vector<Part> parts_;
  PolicyMistake& mistake_;
};

template <class Number>
bool take_number(const std::string& text, double low, double high, Number& to) {
  const std::optional<Number> number = number_in<Number>(text);
  if (!number || !(static_cast<double>(*number) >= low && static_cast<double>(*number) <= high)) return false;
  to = *number;
  return true;
}

bool take_deviation(const std::string& text, Levels& levels) {
  if (!take_number(text, 0, std::numeric_limits<double>::max(), levels.deviation)) return false;
  if (levels.deviation > kMostDeviation) levels.deviation = std::numeric_limits<double>::infinity();
  return true;
}

std::unique_ptr<const AugmentPolicy> rand_policy(PolicyWord& word) {
  RandOptions options;
  int64_t level = 10, increases = 0, most = 10;
  constexpr double kMostOperations = 20, kHighestLevel = 100;
  const bool is_right = word.each_part(
      "m9 (level), n2 (operations), p0.5 (probability of each), mstd0.5 (deviation of levels; above 100: uniform), "
      "mmax10 (highest level), inc1 (all grow with the level)",
      [&](const std::string& key, const std::string& value) {
        if (key == "m") return take_number(value, 0, kHighestLevel, level);
        if (key == "n") return take_number(value, 1, kMostOperations, options.count);
        if (key == "p") return take_number(value, 0, 1, options.probability);
        if (key == "mstd") return take_deviation(value, options.levels);
        if (key == "mmax") return take_number(value, 1, kHighestLevel, most);
        return key == "inc" && take_number(value, 0, 1, increases);
      });
  if (!is_right) return nullptr;
  options.level = static_cast<double>(level);
  options.levels.most = static_cast<double>(most);
  options.increases = increases == 1;
  return std::make_unique<TimmRandAugment>(options);
}

std::unique_ptr<const AugmentPolicy> augmix_policy(PolicyWord& word) {
  AugMixOptions options;
  constexpr double kHighestLevel = 100, kMostOperations = 20, kMostAlpha = 100;
  const bool is_right = word.each_part(
      "m3 (level), w3 (chains), d2 (operations of each; else 1 to 3), a1 (alpha of their shares), mstd0.5 (deviation "
      "of "
      "levels; else uniform)",
      [&](const std::string& key, const std::string& value) {
        if (key == "m") return take_number(value, 0, kHighestLevel, options.level);
        if (key == "w") return take_number(value, 1, kMostOperations, options.width);
        if (key == "d") return take_number(value, 1, kMostOperations, options.depth);
        if (key == "a") return take_number(value, 0.01, kMostAlpha, options.alpha);
        return key == "mstd" && take_deviation(value, options.levels);
      });
  return is_right ? std::make_unique<TimmAugMix>(options) : nullptr;
}

}  // namespace

std::unique_ptr<const AugmentPolicy> timm_policy(const std::string& word, PolicyMistake& mistake) {
  PolicyWord parts(word, mistake);
  if (parts.name() == "augmix") return augmix_policy(parts);
  return parts.name() == "rand" ? rand_policy(parts) : nullptr;
}

}  // namespace gputrain::data
