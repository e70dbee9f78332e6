// A trained model of any data.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

struct TrainedModel {
  RankContext context;
  JobDatasets datasets;  // without samples
  BuiltModel built;
};

/// Opens a run folder and loads the weights: the run's model.safetensors or, before there is one, its
/// newest checkpoint. Data is opened as signature_of_run() does. `set`: --set of the run's job. Throws Error(usage) for
/// another folder; Error(data) for weights that cannot be read.
std::unique_ptr<TrainedModel> open_trained_model(const std::filesystem::path& folder,
                                                 const std::vector<std::string>& set);

}  // namespace gputrain::app
