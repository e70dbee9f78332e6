// Image files as inputs of a trained model, without targets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/data/dataset.hpp"
#include "gputrain/data/options.hpp"

namespace gputrain::datasets {

inline constexpr int64_t kMostImageBytes = int64_t{1} << 30;

/// Reads a whole file. Throws Error(data), also for a file of more than kMostImageBytes.
void read_image_file(const std::string& path, std::vector<std::byte>& bytes);

/// Image files that somebody named.
struct GivenImages {
  std::vector<std::string> files;
  std::vector<std::string> others;  // what is wrong with each path that does not exist, or is no image
};
/// Finds the JPEG and PNG files among these paths and in the folders among them, each folder in order of its paths.
/// Throws Error(data) if there is none.
GivenImages image_files(const std::vector<std::string>& paths);

/// Returns the images of files, fitted as for validation. All have class 0 of `class_names`, which must not be empty;
/// or, for a model of numbers or of sets of classes, a 0 for each of them. `options` must have a size.
std::shared_ptr<const data::Dataset> given_images(const std::vector<std::string>& files,
                                                  const data::ImageOptions& options,
                                                  const std::vector<std::string>& class_names, Target target);

}  // namespace gputrain::datasets
