// Search for the files that a list of images names, in the usual spellings.
#pragma once

#include <filesystem>
#include <string>

namespace gputrain::records {

class ImagePaths {
 public:
  /// Takes the list's folder.
  explicit ImagePaths(std::filesystem::path folder);

  /// Returns the path of an image's file below the folder of the list, or absolute. Looks below this folder and the one
  /// above it, takes backslashes for slashes and adds the ending that the name may lack. Empty: there is no such file.
  /// Throws Error(data) for an address of the web, and if a name without ending has several files.
  std::string found(const std::string& name) const;

  std::string full(const std::string& path) const { return (folder_ / path).string(); }
  /// Describes for messages where it looks.
  std::string hint() const;

 private:
  std::string with_ending(const std::string& path) const;

  std::filesystem::path folder_;
};

}  // namespace gputrain::records
