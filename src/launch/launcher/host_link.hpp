// The launcher's side of one host: its agent behind a pipe, behind the user's ssh, or behind a connection that the node
// has opened itself.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "../protocol/messages.hpp"
#include "gputrain/core/lines.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/launch/child.hpp"
#include "gputrain/launch/hosts.hpp"

namespace gputrain::launch {

class HostLink {
 public:
  enum class State { away, connecting, ready };
  using Take = std::function<void(const nlohmann::json& message)>;

  HostLink(Host host, std::string version, std::string device);
  /// Makes the link to a node whose own launcher connects to us.
  static std::unique_ptr<HostLink> to_node(int node, std::string version, std::string device);

  const std::string& name() const noexcept { return host_.name; }
  State state() const noexcept { return state_; }
  bool is_here() const noexcept { return is_here_; }
  pid_t process() const noexcept { return process_ ? process_->id() : -1; }
  bool has_agent() const noexcept { return output_.has_value(); }  // or a connection that becomes one
  int ranks() const { return host_.ranks.value_or(own_ranks_); }
  const std::string& address() const noexcept { return address_; }                    // as the launcher reached it
  const std::string& launcher_address() const noexcept { return launcher_address_; }  // ours, as seen from there
  const std::string& loss() const noexcept { return loss_; }                          // why it is away
  /// Notes that the host is about to be taken away: it gets no ranks until it was gone and has come back.
  void leave() noexcept { is_leaving_ = state_ != State::away; }
  bool is_leaving() const noexcept { return is_leaving_; }

  /// Starts the agent; for a node: waits for its connection.
  void connect();
  /// Takes the socket of a node that has connected, unless it returns false: the node is here already.
  bool welcome(int socket);
  void send(const nlohmann::json& message);
  void drop(std::string why);
  void add_to(Poll& poll) const;
  /// Reads the agent's messages, keeps the connection alive, and detects its loss.
  void attend(const Take& take);

 private:
  void greet();
  void take_line(std::string_view line, const Take& take);
  void get_ready(const nlohmann::json& message);
  std::string story_of(const ProcessStatus& status) const;

  Host host_;
  std::string version_, device_;
  bool is_here_, comes_by_itself_ = false, is_leaving_ = false;
  State state_ = State::away;
  int own_ranks_ = 1;
  std::string address_, launcher_address_, loss_;
  std::optional<Child> process_;
  std::optional<LineReader> output_, errors_;
  std::optional<LineWriter> input_;
  std::string remark_;  // the last line that is no message
  Clock::time_point began_, last_heard_, last_attended_, next_alive_;
  std::optional<Clock::time_point> ended_output_;
};

}  // namespace gputrain::launch
