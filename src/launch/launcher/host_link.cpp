#include "host_link.hpp"

#include <fcntl.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/core/json.hpp"
#include "gputrain/launch/host_command.hpp"

namespace gputrain::launch {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kConnectTime{30}, kLastWords{1};

}  // namespace

HostLink::HostLink(Host host, std::string version, std::string device)
    : host_(std::move(host)), version_(std::move(version)), device_(std::move(device)), is_here_(host_.is_here()) {}

std::unique_ptr<HostLink> HostLink::to_node(int node, std::string version, std::string device) {
  auto link = std::make_unique<HostLink>(Host{.name = "node " + std::to_string(node), .ranks = {}}, std::move(version),
                                         std::move(device));
  link->comes_by_itself_ = true;
  link->loss_ = "it has not connected";
  return link;
}

void HostLink::connect() {
  began_ = Clock::now();
  state_ = State::connecting;
  if (comes_by_itself_) return;
  process_.reset();
  remark_.clear();
  // An agent must end its ranks after we are gone, so it is not killed with us; ssh has no such task.
  // The words are always the same; everything else goes through the pipe.
  process_.emplace(Child::Options{.argv = command_on(host_, {"agent"}),
                                  .environment = own_environment(),
                                  .has_input = true,
                                  .dies_with_us = !is_here_});
  output_.emplace(process_->take_output());
  errors_.emplace(process_->take_errors());
  input_.emplace(process_->take_input(), size_t{16} << 20);
  greet();
}

bool HostLink::welcome(int socket) {
  if (output_) return false;
  output_.emplace(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  input_.emplace(socket, size_t{16} << 20);
  state_ = State::connecting;
  greet();
  return true;
}

void HostLink::greet() {
  ended_output_.reset();
  began_ = last_heard_ = last_attended_ = Clock::now();
  next_alive_ = began_ + kAliveEvery;
  send({{"kind", "hello"},
        {"is_far", !is_here_},
        {"folder", std::filesystem::current_path().string()},
        {"device", device_}});
}

void HostLink::send(const json& message) {
  if (state_ != State::away && input_) input_->insist(to_line(message));
}

void HostLink::drop(std::string why) {
  state_ = State::away;
  is_leaving_ = false;
  loss_ = std::move(why);
  if (input_) input_->close();
  // The local agent ends its ranks when its input closes; wait for that.
  if (is_here_ && process_ && process_->is_running()) {
    const auto latest = Clock::now() + kEndGrace + kLastWords;
    while (process_->is_running() && Clock::now() < latest) {
      Poll poll;
      poll.wake_at(Clock::now() + std::chrono::milliseconds(20));
      poll.wait();
      process_->look();
    }
  }
  process_.reset();
  output_.reset();
  errors_.reset();
  input_.reset();
}

void HostLink::add_to(Poll& poll) const {
  if (state_ == State::away) return;
  if (!output_) return poll.wake_at(began_ + kConnectTime);
  poll.add(output_->descriptor());
  if (errors_) poll.add(errors_->descriptor());
  poll.add(input_->wants(), POLLOUT);
  poll.wake_at(next_alive_);
  if (ended_output_) poll.wake_at(*ended_output_ + kLastWords);
}

void HostLink::attend(const Take& take) {
  if (state_ == State::away) return;
  if (!output_) {
    if (Clock::now() > began_ + kConnectTime) drop("it has not connected");
    return;
  }
  const auto now = Clock::now();
  if (now - std::exchange(last_attended_, now) > kOwnSleep) last_heard_ = now;
  const auto status = process_ ? process_->look() : std::nullopt;
  std::vector<std::string> lines;  // handling a line may destroy the reader
  output_->read([&](std::string_view line) { lines.emplace_back(line); });
  for (size_t i = 0; i < lines.size() && state_ != State::away; ++i) take_line(lines[i], take);
  if (state_ == State::away) return;
  if (errors_) errors_->read([&](std::string_view line) { remark_ = std::string(line.substr(0, 300)); });
  if (status && status->is_end()) return drop(story_of(*status));
  if (output_->is_at_end() && !ended_output_) ended_output_ = now;
  if (ended_output_ && comes_by_itself_) return drop("its launcher has ended");
  if (ended_output_ && now > *ended_output_ + kLastWords) return drop("the agent there has closed its output");
  if (state_ == State::connecting && now > began_ + kConnectTime) return drop("no answer within 30 s");
  if (state_ == State::ready && now > last_heard_ + kLongestSilence) return drop("no message from it for 15 s");
  if (now >= next_alive_) {
    send({{"kind", "alive"}});
    next_alive_ = now + kAliveEvery;
  }
  input_->flush();
}

void HostLink::take_line(std::string_view line, const Take& take) {
  const auto message = read_message(line);
  if (!message) {  // output of a login shell there
    remark_ = std::string(line.substr(0, 300));
    return;
  }
  last_heard_ = Clock::now();
  try {
    const std::string kind = message->at("kind");
    if (state_ == State::connecting && kind == "problem") return drop(message->at("text"));
    if (state_ == State::connecting && kind == "ready") return get_ready(*message);
    if (kind != "alive") take(*message);
  } catch (const json::exception& error) {
    drop("the agent there sent an invalid message: " + reason_in(error));
  }
}

void HostLink::get_ready(const json& message) {
  const std::string version = message.at("version");
  if (message.at("protocol") != kProtocol || version != version_) {
    return drop("gputrain there is " + version + ", here " + version_);
  }
  own_ranks_ = message.at("ranks").get<int>();
  address_ = message.at("address");
  launcher_address_ = message.at("launcher_address");
  state_ = State::ready;
}

std::string HostLink::story_of(const ProcessStatus& status) const {
  const std::string who = is_here_ ? "its agent" : "ssh to it";
  if (status.kind == ProcessStatus::Kind::killed) return who + " was killed by " + signal_text(status.number);
  if (!remark_.empty()) return remark_;
  const bool is_of_agent = !is_here_ && state_ == State::ready;
  // The remote shell reports a signal as exit code 128 + N.
  if (is_of_agent && status.number > 128 && status.number < 128 + NSIG)
    return "its agent was killed by " + signal_text(status.number - 128);
  if (is_of_agent) return "the agent there ended without a word (ssh exit code " + std::to_string(status.number) + ")";
  return who + " ended with exit code " + std::to_string(status.number);
}

}  // namespace gputrain::launch
