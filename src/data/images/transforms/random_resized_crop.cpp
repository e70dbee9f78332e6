// Crops like torchvision's RandomResizedCrop.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "gputrain/data/augmentation.hpp"

namespace gputrain::data {
namespace {

struct RandomResizedCropSpec {
  std::optional<std::vector<double>> area;
  std::vector<double> ratio{3.0 / 4, 4.0 / 3};

  static void describe(config::Description<RandomResizedCropSpec>& d) {
    d.key("random_resized_crop", &RandomResizedCropSpec::area,
          "smallest and largest fraction of the area that a crop covers; it is resized to `size`")
        .elements(2)
        .range(0, 1);
    d.key("random_resized_crop_ratio", &RandomResizedCropSpec::ratio,
          "smallest and largest width of such a crop, as a multiple of its height")
        .elements(2)
        .above(0);
    d.check([](const RandomResizedCropSpec& spec, config::SpecIssues& issues) {
      if (spec.area && !(spec.area->front() > 0 && spec.area->front() <= spec.area->back()))
        issues.add("random_resized_crop",
                   "give the smallest and the largest fraction of the area, above 0 and in this order",
                   "random_resized_crop: [0.08, 1.0]");
      if (!spec.area && spec.ratio != RandomResizedCropSpec().ratio)
        issues.add("random_resized_crop_ratio", "there is no random_resized_crop", "random_resized_crop: [0.08, 1.0]");
      if (spec.ratio[0] > spec.ratio[1])
        issues.add("random_resized_crop_ratio", "give the smallest and the largest ratio, in this order",
                   "random_resized_crop_ratio: [0.75, 1.333]");
    });
  }
};

class RandomResizedCrop final : public Augmentation {
 public:
  explicit RandomResizedCrop(const RandomResizedCropSpec& spec) : area_(spec.area), ratio_(spec.ratio) {}

  bool is_on() const override { return area_.has_value(); }
  int order() const override { return 10; }
  bool crops() const override { return true; }
  bool needs_size() const override { return true; }
  // Follows common practice: train on crops of 224, test after resizing to 256.
  double eval_zoom() const override { return 256.0 / 224.0; }

  void place(RandomStream& random, const ImageDecoder::Size& image, Fit& fit) const override {
    fit = {.full_width = fit.width, .full_height = fit.height, .width = fit.width, .height = fit.height};
    const auto take = [&fit](int64_t left, int64_t top, int64_t across, int64_t down) {
      fit.left = left;
      fit.top = top;
      fit.right = left + across;
      fit.bottom = top + down;
    };
    const auto& [width, height] = image;
    const double w = static_cast<double>(width), h = static_cast<double>(height);
    constexpr int kAttempts = 10;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const double area = w * h * random.uniform(area_->front(), area_->back());
      const double aspect = std::exp(random.uniform(std::log(ratio_[0]), std::log(ratio_[1])));
      const int64_t across = std::lround(std::sqrt(area * aspect)), down = std::lround(std::sqrt(area / aspect));
      if (across < 1 || across > width || down < 1 || down > height) continue;
      const int64_t top = random.below(height - down + 1);
      return take(random.below(width - across + 1), top, across, down);
    }
    // The image is too long and narrow: take the largest allowed crop from its middle.
    const int64_t across = std::min(width, std::max<int64_t>(1, std::lround(h * ratio_[1])));
    const int64_t down = std::min(height, std::max<int64_t>(1, std::lround(w / ratio_[0])));
    take((width - across) / 2, (height - down) / 2, across, down);
  }

 private:
  std::optional<std::vector<double>> area_;
  std::vector<double> ratio_;
};

const config::Registered<RandomResizedCrop, RandomResizedCropSpec> registered_random_resized_crop{
    augmentations(), "random_resized_crop", "a random crop of the image, resized"};

}  // namespace
}  // namespace gputrain::data
