// What a trained model says of files: of texts their classes, numbers, tags, or vectors; of images their classes or
// numbers, or classes of their pixels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/trained/model.hpp"

namespace gputrain::app {

struct TextsToRead {
  std::string file;         // as records::read_given_texts() reads it
  int64_t batch_size = 32;  // texts of similar length, side by side
};

/// What the model predicts, in the order of the file. With `json` an object per line for each text; else a line for
/// each text, of a tagger a line for each word and an empty one behind each text. Throws Error(data) for a file
/// that cannot be read.
std::string predictions_of(trained::Model& model, const TextsToRead& texts, bool json);

struct ImagesToSee {
  std::vector<std::string> files;  // images, and folders of them
  int64_t batch_size = 32;
  bool json = false;
  std::filesystem::path masks = {};  // the folder to write them to; is made if it does not exist
};

struct ImagePredictions {
  std::string lines;
  std::vector<std::string> unreadable;  // of each image that cannot be read: why; it has no line
};

/// The most likely classes of each image, in the order of the files: a line with the file and its best classes, with
/// `json` an object with the probabilities of all; or the numbers of each image with their names.
ImagePredictions predictions_of(trained::Model& model, const ImagesToSee& images);

/// For a model that labels pixels: writes FOLDER/STEM.png for each image, a mask as large as the image, whose numbers
/// are the classes. Returns a line for each, in the order of the files: file, mask, and the classes with their shares
/// of the pixels; with `json` an object. Replaces files of these names. Throws Error(usage) without a folder, for
/// images of one stem, and where a mask would replace an image; Error(environment) for a mask that cannot be written.
ImagePredictions write_masks(trained::Model& model, const ImagesToSee& images);

/// The vectors of the texts, in the order of the file: float32 [texts, channels] on the CPU. `model` gives
/// vectors. Throws Error(data) for a file that cannot be read.
at::Tensor embeddings_of(trained::Model& model, const TextsToRead& texts);

/// Writes a float32 tensor on the CPU in NumPy's format .npy, version 1.0. Throws Error(environment).
void write_npy(const at::Tensor& values, const std::string& path);

}  // namespace gputrain::app
