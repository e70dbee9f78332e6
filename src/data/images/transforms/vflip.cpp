#include <algorithm>

#include "gputrain/data/augmentation.hpp"

namespace gputrain::data {
namespace {

struct VflipSpec {
  double probability = 0;

  static void describe(config::Description<VflipSpec>& d) {
    d.key("vflip", &VflipSpec::probability, "probability of a flip from top to bottom").range(0, 1);
  }
};

class Vflip final : public Augmentation {
 public:
  explicit Vflip(const VflipSpec& spec) : probability_(spec.probability) {}

  bool is_on() const override { return probability_ > 0; }
  int order() const override { return 35; }
  void recolour(RandomStream& random, const Pixels& pixels) const override {
    if (random.uniform() >= probability_) return;
    flip(pixels.values, pixels.width * pixels.channels, pixels.height);
    if (pixels.mask != nullptr) flip(pixels.mask, pixels.width, pixels.height);
  }

 private:
  template <class T>
  static void flip(T* values, int64_t row, int64_t rows) {
    for (int64_t y = 0; y < rows / 2; ++y)
      std::swap_ranges(values + y * row, values + (y + 1) * row, values + (rows - 1 - y) * row);
  }

  double probability_;
};

const config::Registered<Vflip, VflipSpec> registered_vflip{augmentations(), "vflip", "a flip from top to bottom"};

}  // namespace
}  // namespace gputrain::data
