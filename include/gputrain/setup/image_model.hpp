// A trained model of images or of their pixels that is ready to look at files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/data/options.hpp"
#include "gputrain/data/preprocess.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

/// What a model of images was trained to see. It lies in the metadata of its weights, so that they are of use without
/// the training data.
struct ImageInput {
  int64_t height = 0, width = 0, channels = 0, classes = 0;
  data::Normalization normalization;

  data::SampleLayout layout(TextUse use) const;

  /// Of training data; empty: it has no images.
  static std::optional<ImageInput> of(const data::Dataset& learned);
  /// Empty: the weights do not say.
  static std::optional<ImageInput> in(const checkpoint::Metadata& metadata);
  void note(checkpoint::Metadata& metadata) const;
};

struct TrainedImages {
  ImageInput input;
  std::vector<std::string> class_names;  // empty: they have none

  /// Empty: the weights do not say.
  static std::optional<TrainedImages> in(const checkpoint::Metadata& metadata);
  /// What the weights of a run say, or, as a checkpoint does not, those that it wrote at its end.
  static std::optional<TrainedImages> of(const Job& job, const std::filesystem::path& weights);

  /// Training data of which all is known but the samples.
  std::shared_ptr<const data::Dataset> without_samples(const Job& job) const;
};

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

/// What a job of images learns: a class, a set of classes, or numbers.
TextUse use_of_images(const Job& job);

/// Whether this is the folder of a run that trains on images.
bool is_image_run(const std::filesystem::path& folder);

/// Opens a run's model with its weights, and the images as its validation data would be. The training data is opened
/// only if the weights do not say what they were trained on, as in a run that has not ended. Throws Error(usage) for a
/// folder that is no run of images; Error(data) for weights that cannot be read.
std::unique_ptr<ImageModel> open_image_model(const ImageModelRequest& request);

}  // namespace gputrain::app
