// How a trained model looks at images.
#pragma once

#include "gputrain/data/options.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::app {

/// How the run's validation images are read, with what the job left to the data.
data::ImageOptions image_options_of(const trained::Model& model);

}  // namespace gputrain::app
