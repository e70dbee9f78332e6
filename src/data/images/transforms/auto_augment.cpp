// RandAugment, AugMix and TrivialAugment, under their names in timm and torchvision.
#include <memory>
#include <optional>
#include <string>

#include "../augment_policy.hpp"

namespace gputrain::data {
namespace {

struct AutoAugmentSpec {
  std::optional<std::string> word;

  static void describe(config::Description<AutoAugmentSpec>& d) {
    d.key("auto_augment", &AutoAugmentSpec::word,
          "random operations on colours and geometry: timm's rand-m9-mstd0.5-inc1 (RandAugment; also -n2, -p0.5, "
          "-mmax10) and augmix-m3-w3 (AugMix; also -d2, -a1, -mstd0.5), torchvision's trivial (TrivialAugmentWide)")
        .aliases({"aa"});
    d.check([](const AutoAugmentSpec& spec, config::SpecIssues& issues) {
      PolicyMistake mistake;
      if (spec.word && !policy_of(*spec.word, mistake)) issues.add("auto_augment", mistake.what, mistake.hint);
    });
  }
};

class AutoAugmentation final : public Augmentation {
 public:
  explicit AutoAugmentation(const AutoAugmentSpec& spec) {
    PolicyMistake reported_by_the_check;
    if (spec.word) policy_ = policy_of(*spec.word, reported_by_the_check);
  }

  bool is_on() const override { return policy_ != nullptr; }
  int order() const override { return 40; }
  bool keeps_masks() const override { return false; }

  void recolour(RandomStream& random, const Pixels& pixels) const override {
    const Colour outside = policy_->shows_mean_outside() ? mean_colour(pixels) : Colour{};
    policy_->change(random, pixels, outside);
  }

 private:
  std::unique_ptr<const AugmentPolicy> policy_;
};

const config::Registered<AutoAugmentation, AutoAugmentSpec> registered_auto_augment{
    augmentations(), "auto_augment", "RandAugment, AugMix or TrivialAugment"};

}  // namespace
}  // namespace gputrain::data
