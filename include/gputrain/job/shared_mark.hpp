// A file by which hosts find out whether they see the same folder.
#pragma once

#include <filesystem>
#include <string>

namespace gputrain::app {

/// A file with a random name in a folder, or in the nearest existing one above it. Removed by the destructor.
class SharedMark {
 public:
  SharedMark() = default;  // none
  explicit SharedMark(const std::filesystem::path& folder);
  SharedMark(SharedMark&& other) noexcept;
  SharedMark& operator=(SharedMark&& other) noexcept;
  ~SharedMark();

  /// Returns its place as seen from the folder, "../.gputrain-5d85e2"; empty: it could not be written.
  const std::string& place() const noexcept { return place_; }

 private:
  std::filesystem::path path_;
  std::string place_;
};

/// Returns whether a mark at this place is seen from a folder, which need not exist. Looks again for three seconds,
/// because network file systems may show new files late.
bool shows_mark(const std::filesystem::path& folder, const std::string& place);

}  // namespace gputrain::app
