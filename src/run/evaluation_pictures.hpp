// Pictures of an evaluation for trackers: sheets of its worst samples.
#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/monitor/record.hpp"

namespace gputrain::app {

/// Draws the eight worst samples of train::Evaluator::details_of(). "val/worst" has images of the greatest losses with
/// their class, the class that they were taken for (red if it is another), and the loss. "val/masks" has image, true
/// mask and predicted mask, with the share of wrong pixels. A class whose name has letters outside ASCII is drawn as
/// its number; captions have all names. Empty for samples that are no images.
std::vector<monitor::Picture> evaluation_pictures(const nlohmann::ordered_json& details);

}  // namespace gputrain::app
