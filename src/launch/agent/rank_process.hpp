// One rank on this host: its process, its output, its log file.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "../protocol/messages.hpp"
#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/lines.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/launch/child.hpp"

namespace gputrain::launch {

class RankProcess {
 public:
  using Line = std::function<void(std::string_view line, bool is_error)>;

  /// `log` empty: no log file.
  RankProcess(int rank, const Child::Options& options, std::filesystem::path log);

  int rank() const noexcept { return rank_; }
  /// Returns why there is no log file; empty if there is one.
  const std::string& log_problem() const noexcept { return log_problem_; }
  bool is_running() const noexcept { return child_.is_running(); }
  pid_t process() const noexcept { return child_.id(); }
  void add_to(Poll& poll) const;
  /// Passes on what the rank has written, after writing it to the log file.
  void read(const Line& line);
  /// Returns what happened to the process, if anything. After its end all its lines have been read.
  std::optional<ProcessStatus> look(const Line& line);
  RankEnd end(const ProcessStatus& status) const;
  void signal(int number);

 private:
  void take(std::string_view text, bool is_error, const Line& line);

  int rank_, process_;
  Child child_;
  LineReader output_, errors_;
  std::filesystem::path log_path_;
  std::string log_problem_;
  Descriptor log_;
  std::deque<std::string> tail_;
  std::string oom_or_xid_;
  bool tells_error_ = false, leaves_host_ = false;
  std::set<int> sent_;  // signals that ask it to end
};

}  // namespace gputrain::launch
