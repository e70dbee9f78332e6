// Where the output of ranks is filed: RUN/logs/attempt_K, a folder for each attempt.
#pragma once

#include <filesystem>

namespace gputrain::launch {

class LogFolders {
 public:
  /// Those of earlier launches stay, and are counted on from.
  explicit LogFolders(const std::filesystem::path& run_folder);

  /// The next attempt's; whoever files something makes it.
  std::filesystem::path next();
  int number() const noexcept { return number_; }  // of the newest attempt
  /// Takes away what ranks of the newest attempt have left that ended without a word: empty logs, and the folders that
  /// were made for them.
  void remove_traces() const;

 private:
  std::filesystem::path newest() const;

  std::filesystem::path folder_;
  std::filesystem::path kept_;  // the innermost of the run folder and those above it that is older than the run
  int number_ = 0;
};

}  // namespace gputrain::launch
