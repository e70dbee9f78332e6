#include "../pixel_ops.hpp"

namespace gputrain::data {
namespace {

struct GrayscaleSpec {
  double probability = 0;

  static void describe(config::Description<GrayscaleSpec>& d) {
    d.key("grayscale", &GrayscaleSpec::probability, "probability that an image loses its colours")
        .range(0, 1)
        .aliases({"grayscale_prob"});
  }
};

class Grayscale final : public Augmentation {
 public:
  explicit Grayscale(const GrayscaleSpec& spec) : probability_(spec.probability) {}

  bool is_on() const override { return probability_ > 0; }
  int order() const override { return 60; }
  void recolour(RandomStream& random, const Pixels& pixels) const override {
    if (random.uniform() < probability_) grey(pixels);
  }

 private:
  double probability_;
};

const config::Registered<Grayscale, GrayscaleSpec> registered_grayscale{augmentations(), "grayscale",
                                                                        "images without their colours"};

}  // namespace
}  // namespace gputrain::data
