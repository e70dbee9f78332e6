// Folders for the output of ranks: RUN/logs/start_K, one each time that a launcher starts them. The attempts of the
// run, which its ledger counts, have other numbers: some starts come to none, and a launcher does not know all runs
// before.
#pragma once

#include <filesystem>

namespace gputrain::launch {

class LogFolders {
 public:
  /// Keeps the folders of earlier launches and continues their numbers. Without a run folder there are none.
  explicit LogFolders(const std::filesystem::path& run_folder);

  /// Returns the folder of the next start, or an empty path; its first writer creates it.
  std::filesystem::path next();
  int number() const noexcept { return number_; }  // of the newest start
  /// Removes what ranks of the newest start left that printed nothing: empty logs, and the folders made for them.
  void remove_traces() const;

 private:
  std::filesystem::path newest() const;

  std::filesystem::path folder_;
  std::filesystem::path kept_;  // the deepest folder on the path of the run folder that existed before the run
  int number_ = 0;
};

}  // namespace gputrain::launch
