#include "log_folders.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <system_error>

namespace gputrain::launch {

namespace fs = std::filesystem;

LogFolders::LogFolders(const fs::path& run_folder)
    : folder_(run_folder.empty() ? run_folder : run_folder / "logs"), kept_(folder_.parent_path()) {
  if (folder_.empty()) return;
  while (!kept_.empty() && !fs::exists(kept_)) kept_ = kept_.parent_path();
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder_, absent)) {
    int number = 0;
    if (std::sscanf(entry.path().filename().c_str(), "start_%9d", &number) == 1) number_ = std::max(number_, number);
  }
}

fs::path LogFolders::newest() const {
  return folder_.empty() ? folder_ : folder_ / ("start_" + std::to_string(number_));
}

fs::path LogFolders::next() {
  ++number_;
  return newest();
}

void LogFolders::remove_traces() const {
  if (folder_.empty()) return;
  std::error_code ignored;
  for (const auto& log : fs::directory_iterator(newest(), ignored)) {
    if (fs::is_empty(log, ignored)) fs::remove(log, ignored);
  }
  for (fs::path folder = newest(); folder != kept_ && fs::remove(folder, ignored);) folder = folder.parent_path();
}

}  // namespace gputrain::launch
