// What a trained model says of files: of texts their classes, numbers, tags, or vectors; of images their classes or
// numbers, or classes of their pixels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/setup/image_model.hpp"
#include "gputrain/setup/text_encoder.hpp"

namespace gputrain::app {

struct TextsToRead {
  std::string file;         // as records::read_given_texts() reads it
  int64_t batch_size = 32;  // texts of similar length, side by side
};

/// What the encoder predicts, in the order of the file. With `json` an object per line for each text; else a line for
/// each text, of a tagger a line for each word and an empty one behind each text. Throws Error(usage) if the encoder
/// was not trained for classes, numbers or tags; Error(data) for a file that cannot be read.
std::string predictions_of(TextEncoder& encoder, const TextsToRead& texts, bool json);

struct ImagePredictions {
  std::string lines;
  std::vector<std::string> unreadable;  // of each image that cannot be read: why; it has no line
};

/// The most likely classes of each image, in the order of the files: a line with the file and its best classes, with
/// `json` an object with the probabilities of all; or the numbers of each image with their names.
ImagePredictions predictions_of(ImageModel& model, int64_t batch_size, bool json);

struct MasksToWrite {
  std::filesystem::path folder;  // is made if it does not exist
  int64_t batch_size = 32;       // images of one size, side by side
  bool json = false;
};

/// Of a model that labels pixels: writes FOLDER/STEM.png for each image, a mask as large as the image, whose numbers
/// are the classes. Returns a line for each, in the order of the files: file, mask, and the classes with their shares
/// of the pixels; with `json` an object. Replaces files of these names. Throws Error(usage) without a folder, for
/// images of one stem, and where a mask would replace an image; Error(environment) for a mask that cannot be written.
ImagePredictions write_masks(ImageModel& model, const MasksToWrite& masks);

/// The vectors of the texts, in the order of the file: float32 [texts, channels] on the CPU. Throws Error(usage) if the
/// encoder gives no vectors; Error(data) for a file that cannot be read.
at::Tensor embeddings_of(TextEncoder& encoder, const TextsToRead& texts);

/// Writes a float32 tensor on the CPU in NumPy's format .npy, version 1.0. Throws Error(environment).
void write_npy(const at::Tensor& values, const std::string& path);

}  // namespace gputrain::app
