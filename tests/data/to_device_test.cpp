
#include <gtest/gtest.h>

#include "gputrain/data/loader.hpp"
#include "gputrain/data/preprocess.hpp"

namespace gputrain::data {
namespace {

/// Images whose bytes depend on sample, pixel and channel.
class PatternImages final : public Dataset {
 public:
  PatternImages(int64_t height, int64_t width, int64_t channels, Normalization statistics)
      : statistics_(std::move(statistics)) {
    layout_ = SampleLayout::images(height, width, channels, 10);
  }

  static uint8_t byte_at(int64_t sample, int64_t offset) { return static_cast<uint8_t>(sample * 91 + offset * 7); }

  int64_t size() const override { return 9; }
  const SampleLayout& layout() const override { return layout_; }
  std::optional<Normalization> normalization() const override { return statistics_; }
  std::string describe() const override { return "patterns"; }
  void read(int64_t index, const ReadContext&, const SampleRow& row) const override {
    std::byte* const input = row.bytes(0);
    for (size_t i = 0; i < layout_.input().bytes(); ++i) input[i] = std::byte{byte_at(index, static_cast<int64_t>(i))};
    *row.values<int64_t>(1) = index;
  }

 private:
  SampleLayout layout_;
  Normalization statistics_;
};

void expect_normalized(int64_t channels, const InputFormat& format, double tolerance) {
  constexpr int64_t kHeight = 5, kWidth = 7;
  Normalization statistics;
  for (int64_t c = 0; c < channels; ++c) {
    statistics.mean.push_back(0.4 + 0.05 * static_cast<double>(c));
    statistics.std.push_back(0.2 + 0.03 * static_cast<double>(c));
  }
  LoaderOptions options;
  options.partition = {.global_batch = 9, .micro_batch = 9};
  options.shuffle = false;
  const auto images_of = std::make_shared<PatternImages>(kHeight, kWidth, channels, statistics);
  Loader loader(images_of, options);
  const Preprocess preprocess(*images_of, format);
  const at::Tensor images = preprocess(loader.next_step().micro_batches[0]).input();
  EXPECT_EQ(images.scalar_type(), format.float_type);
  EXPECT_EQ(images.sizes(), (at::IntArrayRef{9, channels, kHeight, kWidth}));
  EXPECT_TRUE(
      images.is_contiguous(format.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous));
  const at::Tensor exact = images.to(at::kDouble).contiguous();
  const double* value = exact.const_data_ptr<double>();
  for (int64_t n = 0; n < 9; ++n)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t p = 0; p < kHeight * kWidth; ++p) {
        const auto i = static_cast<size_t>(c);
        const double raw = PatternImages::byte_at(n, p * channels + c) / 255.0;
        ASSERT_NEAR(*value++, (raw - statistics.mean[i]) / statistics.std[i], tolerance) << n << " " << c << " " << p;
      }
}

TEST(Preprocess, NormalizesImagesPerChannel) {
  for (const int64_t channels : {1, 3})
    for (const bool channels_last : {false, true}) {
      InputFormat format{.channels_last = channels_last};
      expect_normalized(channels, format, 1e-6);
      format.float_type = at::kDouble;
      expect_normalized(channels, format, 1e-14);
      format.float_type = at::kBFloat16;
      expect_normalized(channels, format, 0.01);
    }
}

}  // namespace
}  // namespace gputrain::data
