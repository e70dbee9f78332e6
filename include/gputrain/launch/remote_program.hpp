// This program on a host, which answers questions in lines: each is one line on its stdin.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/core/lines.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/launch/child.hpp"
#include "gputrain/launch/hosts.hpp"

namespace gputrain::launch {

class RemoteProgram {
 public:
  /// Starts `gputrain` with `arguments` on the host, at the path that it has here. Call from the main thread.
  RemoteProgram(const Host& host, const std::vector<std::string>& arguments);

  const std::string& host() const noexcept { return host_; }
  void tell(const std::string& question) { input_.insist(question); }
  /// Returns the next line of its output; nothing at its end or at the deadline.
  std::optional<std::string> line(Clock::time_point deadline);
  /// Returns its error message, or its last words.
  std::string remark() const;

 private:
  void wait(Clock::time_point deadline);

  std::string host_;
  Child process_;
  LineReader output_, errors_;
  LineWriter input_;
  std::deque<std::string> lines_;
  std::string remark_;
};

}  // namespace gputrain::launch
