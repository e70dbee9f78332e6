// Synthetic images and tokens, the same on every machine, for trials and speed measurements.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/options.hpp"
#include "gputrain/datasets/token_windows.hpp"
#include "summary.hpp"

namespace gputrain::datasets {
namespace {

// Random streams per purpose, independent of the job's seed, so that the data never changes.
constexpr uint64_t kPatternSeed = 1, kNoiseSeed = 2, kSampleSeed = 3;

struct SyntheticSpec {
  int64_t samples = 1024;
  int64_t num_classes = 10;
  int64_t vocab_size = 256;
  bool learnable = true;

  static void describe(config::Description<SyntheticSpec>& d) {
    d.summary(
        "made-up data, the same on every machine: tokens for a language model, else images of data.image.size, with a "
        "class for each pixel if the model gives one");
    d.key("samples", &SyntheticSpec::samples, "samples in an epoch").range(1, int64_t{1} << 40).unit("samples");
    d.key("num_classes", &SyntheticSpec::num_classes, "classes of images").range(1, 1 << 20).unit("classes");
    d.key("vocab_size", &SyntheticSpec::vocab_size, "different tokens").range(2, 1 << 20).unit("tokens");
    d.key("learnable", &SyntheticSpec::learnable,
          "true: images show a noisy pattern of their class, and most tokens depend on the previous token; false: all "
          "is noise");
  }
};

class Synthetic final : public data::Dataset {
 public:
  Synthetic(const SyntheticSpec& spec, const data::DatasetRequest& request)
      : spec_(spec), seed_(mix(kSampleSeed, static_cast<uint64_t>(request.role))) {
    if (request.model.reads_tokens()) {
      layout_ = data::SampleLayout::tokens(window_length(request), spec.vocab_size);
      return;
    }
    const data::ImageOptions options = request.image ? *request.image : data::ImageOptions{};
    data::ImageExtent size = data::extent_of(options.size, {.height = 32, .width = 32});
    if (request.role != data::Split::train) size = data::extent_of(options.eval.crop, size);
    const int64_t channels = options.channels.value.value_or(3);
    has_masks_ = request.model.target == Target::pixels;
    layout_ = (has_masks_ ? data::SampleLayout::masked_images : data::SampleLayout::images)(size.height, size.width,
                                                                                            channels, spec.num_classes);
    statistics_ = statistics_for(
        options, channels,
        {std::vector(static_cast<size_t>(channels), 0.5), std::vector(static_cast<size_t>(channels), 0.25)});
    noise_ = random_bytes(kNoiseSeed, layout_.input().bytes() + kNoiseOffsets);
  }

  int64_t size() const override { return spec_.samples; }
  const data::SampleLayout& layout() const override { return layout_; }
  bool is_cheap_to_read() const override { return true; }
  std::optional<data::Normalization> normalization() const override { return statistics_; }

  std::optional<int64_t> class_of(int64_t index) const override {
    if (!layout_.is_image()) return std::nullopt;
    return RandomStream(seed_, static_cast<uint64_t>(index)).below(spec_.num_classes);
  }

  std::string describe() const override {
    if (layout_.is_image()) return describe_images(size(), layout_) + ", made up";
    return counted(size(), "window") + " of " + grouped(layout_.token_count()) + " tokens of " +
           grouped(layout_.outputs) + ", made up";
  }

  void read(int64_t index, const data::ReadContext&, const data::SampleRow& row) const override {
    RandomStream random(seed_, static_cast<uint64_t>(index));
    if (has_masks_) {
      make_masked_image(random, row.values<uint8_t>(0), row.values<int64_t>(1));
    } else if (layout_.is_image()) {
      int64_t* const label = row.values<int64_t>(1);
      *label = random.below(spec_.num_classes);
      make_image(random, *label, row.values<uint8_t>(0));
    } else {
      make_tokens(random, row.values<int64_t>(0), row.values<int64_t>(1));
    }
  }

 private:
  static constexpr size_t kNoiseOffsets = 1 << 16;
  static constexpr size_t kPatternBytes = 64;

  static std::vector<uint8_t> random_bytes(uint64_t seed, size_t count) {
    std::vector<uint8_t> bytes(count);
    for (size_t i = 0; i < count; i += 16) {
      const auto block = philox(seed, i, 0);
      std::memcpy(bytes.data() + i, block.data(), std::min<size_t>(16, count - i));
    }
    return bytes;
  }

  /// Makes an image of the pattern of 8 by 8 fields of its class, and noise from a random place in a fixed buffer,
  /// because new noise for each image would cost more than training a small model.
  void make_image(RandomStream& random, int64_t label, uint8_t* pixels) const {
    const uint8_t* noise = noise_.data() + random.below(kNoiseOffsets);
    if (!spec_.learnable) {
      std::memcpy(pixels, noise, layout_.input().bytes());
      return;
    }
    const std::vector<uint8_t> pattern = random_bytes(mix(kPatternSeed, static_cast<uint64_t>(label)), kPatternBytes);
    const auto& sizes = layout_.input().sizes;
    const int64_t height = sizes[0], width = sizes[1], channels = sizes[2];
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        const int field = pattern[static_cast<size_t>(y * 8 / height * 8 + x * 8 / width)];
        for (int64_t c = 0; c < channels; ++c) *pixels++ = static_cast<uint8_t>((field + *noise++) / 2);
      }
  }

  /// Makes an image of 8 by 8 fields, each with a class of its own, which determines its brightness.
  void make_masked_image(RandomStream& random, uint8_t* pixels, int64_t* mask) const {
    const uint8_t* noise = noise_.data() + random.below(kNoiseOffsets);
    std::array<int64_t, 64> classes{};
    for (int64_t& each : classes) each = random.below(spec_.num_classes);
    const auto& sizes = layout_.input().sizes;
    const int64_t height = sizes[0], width = sizes[1], channels = sizes[2];
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        const int64_t label = classes[static_cast<size_t>(y * 8 / height * 8 + x * 8 / width)];
        const int64_t shade = spec_.learnable ? 255 * label / spec_.num_classes : *noise;
        *mask++ = label;
        for (int64_t c = 0; c < channels; ++c) *pixels++ = static_cast<uint8_t>((shade + *noise++) / 2);
      }
  }

  /// Makes tokens, nine of ten as a function of the previous token.
  void make_tokens(RandomStream& random, int64_t* input, int64_t* target) const {
    const int64_t vocabulary = spec_.vocab_size;
    const auto draw = [&] {
      return static_cast<int64_t>(uint64_t{random.bits()} * static_cast<uint64_t>(vocabulary) >> 32);
    };
    int64_t token = draw();
    for (int64_t t = 0; t < layout_.token_count(); ++t) {
      input[t] = token;
      const bool follows = spec_.learnable && random.bits() % 10 != 0;
      token = follows ? (token * 5 + 17) % vocabulary : draw();
      target[t] = token;
    }
  }

  SyntheticSpec spec_;
  uint64_t seed_;
  bool has_masks_ = false;
  data::SampleLayout layout_;
  std::optional<data::Normalization> statistics_;
  std::vector<uint8_t> noise_;
};

const config::Registered<Synthetic, SyntheticSpec> registered_synthetic{data::catalog(), "synthetic",
                                                                        "made-up images or tokens"};

}  // namespace
}  // namespace gputrain::datasets
