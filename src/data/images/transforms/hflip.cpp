#include "gputrain/data/augmentation.hpp"

namespace gputrain::data {
namespace {

struct HflipSpec {
  double probability = 0;

  static void describe(config::Description<HflipSpec>& d) {
    d.key("hflip", &HflipSpec::probability, "probability of a flip from left to right").range(0, 1);
  }
};

class Hflip final : public Augmentation {
 public:
  explicit Hflip(const HflipSpec& spec) : probability_(spec.probability) {}

  bool is_on() const override { return probability_ > 0; }
  int order() const override { return 30; }
  void place(RandomStream& random, const ImageDecoder::Size&, Fit& fit) const override {
    fit.flip = random.uniform() < probability_;
  }

 private:
  double probability_;
};

const config::Registered<Hflip, HflipSpec> registered_hflip{augmentations(), "hflip", "a flip from left to right"};

}  // namespace
}  // namespace gputrain::data
