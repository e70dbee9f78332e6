// Search of a file of records for images that it lists.
#pragma once

#include <optional>
#include <string>

namespace gputrain::records {

/// The format of a list of images and the columns in which it has their paths and labels.
struct ImageList {
  std::string format, image, label;
};

/// Reads the file, if its name says that it has records. Empty: it has none, or they name no images with labels. Throws
/// Error(data).
std::optional<ImageList> image_list_in(const std::string& path);

/// Returns whether the file's name says that it has records.
bool has_records(const std::string& path);

}  // namespace gputrain::records
