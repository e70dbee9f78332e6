// Options for reading images for a trained model.
#pragma once

#include "gputrain/data/options.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::app {

/// Returns the options of the run's validation images, with those that the job left to the data.
data::ImageOptions image_options_of(const trained::Model& model);

}  // namespace gputrain::app
