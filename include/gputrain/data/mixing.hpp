// Mixup (Zhang et al., arXiv:1710.09412) and CutMix (Yun et al., arXiv:1905.04899): each training image is mixed with
// another of its micro-batch, and so are their classes.
#pragma once

#include <cstdint>

#include "gputrain/config/describe.hpp"

namespace gputrain::data {

// Fields that a loader adds to batches of mixed images. The loss is kMixedPart times that with the targets of kTarget,
// plus (1 - kMixedPart) times that with those of kMixedTarget.
inline constexpr const char* kMixedTarget = "mixed_target";  // [batch] int64
inline constexpr const char* kMixedPart = "mixed_part";      // [batch] float64, the same number in each row

struct MixOptions {
  double mixup = 0, cutmix = 0;
  double probability = 1, switch_probability = 0.5;
  int64_t off_epoch = 0;

  bool is_on() const { return (mixup > 0 || cutmix > 0) && probability > 0; }

  static void describe(config::Description<MixOptions>& d) {
    d.summary("training images are mixed in pairs, the first of a micro-batch with its last; one draw for all of it");
    d.key("mixup", &MixOptions::mixup, "blend two images: alpha of the beta distribution of their parts; 0: never")
        .at_least(0)
        .aliases({"mixup_alpha"});
    d.key("cutmix", &MixOptions::cutmix,
          "replace a rectangle by that of the other image: alpha of the beta distribution of its area; 0: never")
        .at_least(0)
        .aliases({"cutmix_alpha"});
    d.key("probability", &MixOptions::probability, "probability that a micro-batch is mixed")
        .range(0, 1)
        .aliases({"mixup_prob"});
    d.key("switch_probability", &MixOptions::switch_probability, "probability of cutmix, if both are on")
        .range(0, 1)
        .aliases({"mixup_switch_prob"});
    d.key("off_epoch", &MixOptions::off_epoch,
          "epoch, counted from 0, from which on images are no longer mixed; 0: they are until the end")
        .at_least(0)
        .aliases({"mixup_off_epoch"});
  }
};

}  // namespace gputrain::data
