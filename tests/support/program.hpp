// Runs the real program as a user does, and returns its output and exit code.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace gputrain::testing_support {

struct Result {
  int exit_code = -1;  // 128 + signal if a signal ended it
  std::string out, err;
};

/// A running process; the destructor kills it.
class Program {
 public:
  /// Starts `arguments[0]` with our environment plus `environment`.
  Program(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment = {});
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  pid_t id() const noexcept { return pid_; }
  void signal(int number) const;
  bool is_running() const;
  /// Waits for the end, at most `seconds`, longer under a sanitizer. Kills a program that takes longer; its exit code
  /// is then 128 + SIGKILL.
  Result wait(double seconds = 120);
  /// Returns true when stdout contains `text`; false if the program ends or `seconds` pass without it.
  bool prints(const std::string& text, double seconds = 60);
  /// After this, prints() looks only at later output.
  void forget_output() { out_.clear(); }

 private:
  bool read_more(int timeout_milliseconds);

  pid_t pid_ = -1;
  int stdout_ = -1;
  std::string out_;
  std::filesystem::path folder_;
};

/// Runs `gputrain` with these arguments until it ends.
Result gputrain(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment = {});
/// The variable with which the program starts from disk (warm_start.hpp), and has its own command line in /proc, which
/// a job with `env:` needs.
inline const std::map<std::string, std::string> kFromDisk{{"GPUTRAIN_COLD_STARTS", "1"}};
/// The path of the program under test.
std::string gputrain_path();

/// A folder for one test, removed afterwards.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const noexcept { return path_; }
  /// Writes a file in the folder, creates parent folders, and returns its path.
  std::string write(const std::string& name, const std::string& content) const;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::filesystem::path& path);

}  // namespace gputrain::testing_support
