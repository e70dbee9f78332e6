#include "rank_process.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "gputrain/cloud/notice.hpp"
#include "kernel_log_probe.hpp"

namespace gputrain::launch {
namespace {

constexpr size_t kTailLines = 12, kLongestTailLine = 400;

/// Opens the log file. A disk error does not end training: the rank's lines are passed on all the same.
int open_log(const std::filesystem::path& path, std::string& problem) {
  if (path.empty()) return -1;
  std::error_code failure;
  std::filesystem::create_directories(path.parent_path(), failure);
  const int log = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (log < 0) problem = path.string() + ": " + (failure ? failure.message() : std::strerror(errno));
  return log;
}

}  // namespace

RankProcess::RankProcess(int rank, const Child::Options& options, std::filesystem::path log)
    : rank_(rank),
      process_(-1),
      child_(options),
      output_(child_.take_output()),
      errors_(child_.take_errors()),
      log_path_(std::move(log)),
      log_(open_log(log_path_, log_problem_)) {
  process_ = child_.id();
}

void RankProcess::add_to(Poll& poll) const {
  poll.add(output_.descriptor());
  poll.add(errors_.descriptor());
}

void RankProcess::take(std::string_view text, bool is_error, const Line& line) {
  const std::string whole = std::string(text) + '\n';
  // A full disk takes no lines until there is room again; training goes on.
  [[maybe_unused]] const ssize_t written = log_path_.empty() ? 0 : ::write(log_.get(), whole.data(), whole.size());
  tail_.emplace_back(text.substr(0, kLongestTailLine));
  if (tail_.size() > kTailLines) tail_.pop_front();
  if (auto found = find_oom_or_xid(tail_.back()); !found.empty()) oom_or_xid_ = std::move(found);
  const bool tells = text.starts_with("error: ") || text.starts_with("stopped at once");
  tells_error_ = tells_error_ || (is_error && tells);
  leaves_host_ = leaves_host_ || (is_error && text.ends_with(cloud::kMakesWay));
  line(text, is_error);
}

void RankProcess::read(const Line& line) {
  output_.read([&](std::string_view text) { take(text, false, line); });
  errors_.read([&](std::string_view text) { take(text, true, line); });
}

std::optional<ProcessStatus> RankProcess::look(const Line& line) {
  const auto status = child_.look();
  if (status && status->is_end()) read(line);
  return status;
}

RankEnd RankProcess::end(const ProcessStatus& status) const {
  return {.rank = rank_,
          .process = process_,
          .status = status,
          .was_told = !sent_.empty(),
          .killed_by_us = status.kind == ProcessStatus::Kind::killed && sent_.contains(status.number),
          .tells_error = tells_error_,
          .leaves_host = leaves_host_,
          .tail = {tail_.begin(), tail_.end()},
          .clue = oom_or_xid_,
          .log = log_problem_.empty() ? log_path_.string() : ""};
}

void RankProcess::signal(int number) {
  // A rank that is already dead, but not yet reaped, has died by itself.
  if (number != SIGUSR2 && !child_.has_ended()) sent_.insert(number);
  child_.signal(number);
}

}  // namespace gputrain::launch
