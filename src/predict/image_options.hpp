// Options by which images are read for a trained model.
#pragma once

#include "gputrain/data/options.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::app {

/// Returns how the run's validation images are read, with what the job left to the data.
data::ImageOptions image_options_of(const trained::Model& model);

}  // namespace gputrain::app
