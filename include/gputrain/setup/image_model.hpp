// A trained model of images or of their pixels that is ready to look at files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/data/options.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

struct ImageModel {
  RankContext context;
  std::vector<std::string> files;  // of the images
  JobDatasets datasets;            // train is the images to look at; without samples if the model labels pixels
  BuiltModel built;
  data::InputFormat format;
  bool mirrors = false;                  // see models::Mirrored
  TextUse use = TextUse::label;          // what it gives: a class, a set of classes, or numbers
  std::vector<std::string> class_names;  // in order of their numbers; the numbers if they have no names
  data::ImageOptions options;            // with which the run's validation images are read
  bool labels_pixels = false;
};

struct ImageModelRequest {
  std::filesystem::path folder;    // of a run
  std::vector<std::string> set;    // --set of the run's job
  std::vector<std::string> files;  // images
};

/// Opens a run's model with its weights, and the images as its validation data would be. Data is opened as
/// signature_of_run() does. Throws Error(usage) for a folder that is no run of images; Error(data) for weights that
/// cannot be read.
std::unique_ptr<ImageModel> open_image_model(const ImageModelRequest& request);

}  // namespace gputrain::app
