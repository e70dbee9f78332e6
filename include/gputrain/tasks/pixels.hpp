// What an evaluation of pixels' classes leaves in its totals besides the metrics.
#pragma once

#include <optional>
#include <vector>

#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {

/// Name of the rows with the predicted masks of the samples with most wrong pixels: the share of these, the position in
/// the dataset, then the class of each pixel, 255 at most.
inline constexpr const char* kPredictedMasks = "masks";
/// Samples whose masks are kept.
inline constexpr int64_t kKeptMasks = 8;

struct ClassIou {
  std::optional<double> iou;  // intersection over union; empty: the class neither occurs nor is predicted
  double pixels = 0;          // pixels that are of the class
};
/// Returns that of each class; empty for totals of another task.
std::vector<ClassIou> class_ious(const Totals& totals);

}  // namespace gputrain::tasks
