// Predictions of a trained model: classes, numbers, tags or vectors of texts; classes or numbers of images or pixels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/trained/model.hpp"

namespace gputrain::app {

struct TextsToRead {
  std::string file;         // file for records::read_given_texts()
  int64_t batch_size = 32;  // texts of similar length, side by side
};

/// Predicts each text, in the order of the file. With `json` returns an object per line for each text; else a line for
/// each text, or for a tagger a line for each word and an empty line after each text. Throws Error(data).
std::string predictions_of(trained::Model& model, const TextsToRead& texts, bool json);

struct ImagesToSee {
  std::vector<std::string> files;  // images, and folders of them
  int64_t batch_size = 32;
  bool json = false;
  std::filesystem::path masks = {};  // folder for masks; is made if it does not exist
};

struct ImagePredictions {
  std::string lines;
  std::vector<std::string> unreadable;  // reason for each image that cannot be read; it has no line
};

/// Returns a line for each image, in the order of the files: the file and its best classes, with `json` an object with
/// the probabilities of all; or the image's numbers with their names.
ImagePredictions predictions_of(trained::Model& model, const ImagesToSee& images);

/// Writes FOLDER/STEM.png for each image with a model that labels pixels: a mask as large as the image, whose numbers
/// are the classes. Returns a line for each, in the order of the files: file, mask, and the classes with their shares
/// of the pixels; with `json` an object. Replaces files of these names. Throws Error(usage) without a folder, for
/// images of one stem, and if a mask would replace an image; Error(environment) for a mask that cannot be written.
ImagePredictions write_masks(trained::Model& model, const ImagesToSee& images);

/// Returns the vectors of the texts, in the order of the file: float32 [texts, channels] on the CPU. `model` gives
/// vectors. Throws Error(data) for a file that cannot be read.
at::Tensor embeddings_of(trained::Model& model, const TextsToRead& texts);

/// Writes a float32 tensor on the CPU in NumPy's format .npy, version 1.0. Throws Error(environment).
void write_npy(const at::Tensor& values, const std::string& path);

}  // namespace gputrain::app
