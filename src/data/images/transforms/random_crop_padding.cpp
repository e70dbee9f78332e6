#include <algorithm>

#include "gputrain/data/augmentation.hpp"

namespace gputrain::data {
namespace {

struct RandomCropPaddingSpec {
  int64_t padding = 0;

  static void describe(config::Description<RandomCropPaddingSpec>& d) {
    d.key("random_crop_padding", &RandomCropPaddingSpec::padding, "pad each side with black and crop at a random place")
        .range(0, 1024)
        .unit("pixels");
  }
};

class RandomCropPadding final : public Augmentation {
 public:
  explicit RandomCropPadding(const RandomCropPaddingSpec& spec) : padding_(spec.padding) {}

  bool is_on() const override { return padding_ > 0; }
  int order() const override { return 20; }
  bool crops() const override { return true; }

  void place(RandomStream& random, const ImageDecoder::Size&, Fit& fit) const override {
    const auto begin = [&](int64_t full, int64_t length) {
      return random.below(std::max<int64_t>(1, full + 2 * padding_ - length + 1)) - padding_;
    };
    fit.x = begin(fit.full_width, fit.width);
    fit.y = begin(fit.full_height, fit.height);
  }

 private:
  int64_t padding_;
};

const config::Registered<RandomCropPadding, RandomCropPaddingSpec> registered_random_crop_padding{
    augmentations(), "random_crop_padding", "a crop at a random place of the image padded with black"};

}  // namespace
}  // namespace gputrain::data
