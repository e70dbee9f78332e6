// The launcher's side of one host: the agent there, behind a pipe, behind the user's own ssh, or behind a connection
// that it has made itself.
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
  /// Of a node whose own launcher is to come.
  static std::unique_ptr<HostLink> to_node(int node, std::string version, std::string device);

  const std::string& name() const noexcept { return host_.name; }
  State state() const noexcept { return state_; }
  bool is_here() const noexcept { return is_here_; }
  pid_t process() const noexcept { return process_ ? process_->id() : -1; }
  bool has_agent() const noexcept { return output_.has_value(); }  // or somebody who is to become it
  int ranks() const { return host_.ranks.value_or(own_ranks_); }
  const std::string& address() const noexcept { return address_; }                    // by which we reached it
  const std::string& launcher_address() const noexcept { return launcher_address_; }  // ours, as seen from there
  const std::string& loss() const noexcept { return loss_; }                          // why it is away
  /// It is about to be taken away: until it has gone, and come back, it gets no ranks.
  void leave() noexcept { is_leaving_ = state_ != State::away; }
  bool is_leaving() const noexcept { return is_leaving_; }

  /// Of a node: waits for it.
  void connect();
  /// The node has come. False: it is here already; the socket stays the caller's.
  bool welcome(int socket);
  void send(const nlohmann::json& message);
  void drop(std::string why);
  void add_to(Poll& poll) const;
  /// Reads what the agent says, keeps the connection alive, and notices when it is lost.
  void attend(const Take& take);

 private:
  std::vector<std::string> command() const;
  void greet();
  void take_line(std::string_view line, const Take& take);
  void get_ready(const nlohmann::json& message);
  std::string story_of(const Fate& fate) const;

  Host host_;
  std::string version_, device_;
  bool is_here_, comes_by_itself_ = false, is_leaving_ = false;
  State state_ = State::away;
  int own_ranks_ = 1;
  std::string address_, launcher_address_, loss_;
  std::optional<Child> process_;
  std::optional<LineReader> output_, errors_;
  std::optional<LineWriter> input_;
  std::string remark_;  // the last line on its stderr
  Clock::time_point began_, last_heard_, last_attended_, next_alive_;
  std::optional<Clock::time_point> ended_output_;
};

}  // namespace gputrain::launch
