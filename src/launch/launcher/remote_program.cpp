#include "gputrain/launch/remote_program.hpp"

#include <string_view>
#include <utility>

#include "gputrain/launch/host_command.hpp"

namespace gputrain::launch {

RemoteProgram::RemoteProgram(const Host& host, const std::vector<std::string>& arguments)
    : host_(host.name),
      process_({.argv = command_on(host, arguments), .environment = own_environment(), .has_input = true}),
      output_(process_.take_output()),
      errors_(process_.take_errors()),
      input_(process_.take_input(), size_t{1} << 16) {}

void RemoteProgram::wait(Clock::time_point deadline) {
  Poll poll;
  poll.add(output_.descriptor());
  poll.add(errors_.descriptor());
  poll.add(input_.wants(), POLLOUT);
  poll.wake_at(deadline);
  poll.wait();
  output_.read([this](std::string_view line) { lines_.emplace_back(line); });
  errors_.read([this](std::string_view line) {
    if (!remark_.starts_with("error: ")) remark_ = std::string(line.substr(0, 300));
  });
  input_.flush();
}

std::optional<std::string> RemoteProgram::line(Clock::time_point deadline) {
  while (lines_.empty() && !output_.is_at_end() && Clock::now() < deadline) wait(deadline);
  while (output_.is_at_end() && !errors_.is_at_end() && Clock::now() < deadline) wait(deadline);  // why it has ended
  if (lines_.empty()) return std::nullopt;
  std::string first = std::move(lines_.front());
  lines_.pop_front();
  return first;
}

std::string RemoteProgram::remark() const {
  if (remark_.empty()) return "it ended without a word";
  return remark_.starts_with("error: ") ? remark_.substr(7) : remark_;
}

}  // namespace gputrain::launch
