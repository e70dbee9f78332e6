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
  JobDatasets datasets;  // images without samples where the weights say how large they are
  BuiltModel built;
};

/// Opens a run folder and loads the weights: the run's model.safetensors or, before there is one, its
/// newest checkpoint. Data is opened only where the file of the weights does not say what images they read. `set`:
/// --set of the run's job. Throws Error(usage) for another folder; Error(data) for weights that cannot be read.
std::unique_ptr<TrainedModel> open_trained_model(const std::filesystem::path& folder,
                                                 const std::vector<std::string>& set);

}  // namespace gputrain::app
