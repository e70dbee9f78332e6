#include "gputrain/launch/agent.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <utility>

#include "../environment/gpus.hpp"
#include "../launcher/join.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/process.hpp"
#include "kernel_log_probe.hpp"
#include "rank_process.hpp"

namespace gputrain::launch {
namespace {

using nlohmann::json;

/// Reserves a free port for rank 0: bound, not listening, with SO_REUSEADDR. Rank 0 can then listen on it, but the
/// kernel gives it to no other program.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_.get(), generic, length) != 0 || ::getsockname(socket_.get(), generic, &length) != 0) {
      throw Error(ExitCode::environment, {.what = "this host has no free port"});
    }
    number_ = ntohs(address.sin_port);
  }
  int number() const noexcept { return number_; }

 private:
  Descriptor socket_;
  int number_ = 0;
};

/// Returns whether this variable describes a rank of another launcher, under which this one may run.
bool is_foreign_rank_variable(const std::string& entry) {
  constexpr std::array kPrefixes{"SLURM_", "OMPI_", "PMI_", "PMIX_", "PET_", "TORCHELASTIC_"};
  return std::ranges::any_of(kPrefixes, [&](const char* prefix) { return entry.starts_with(prefix); });
}

std::vector<std::string> environment_of_rank(const StartOrder& order, int local_rank) {
  auto variables = order.environment;
  const auto set = [&](const char* name, int value) { variables[name] = std::to_string(value); };
  set("RANK", order.first_rank + local_rank);
  set("WORLD_SIZE", order.world_size);
  set("LOCAL_RANK", local_rank);
  set("LOCAL_WORLD_SIZE", order.ranks);
  set("GROUP_RANK", order.host_number);
  set("GROUP_WORLD_SIZE", order.hosts);
  set("MASTER_PORT", order.master_port);
  set("TORCHELASTIC_RESTART_COUNT", order.restarts);
  variables["MASTER_ADDR"] = order.master_address;
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!variables.contains(text.substr(0, text.find('='))) && !is_foreign_rank_variable(text)) all.push_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

/// Returns this host's address as the launcher reached it, and the launcher's own, both from sshd.
std::pair<std::string, std::string> addresses_of_ssh() {
  const char* text = std::getenv("SSH_CONNECTION");
  std::istringstream words(text == nullptr ? "" : text);
  std::string client, client_port, server;
  words >> client >> client_port >> server;
  return {server, client};
}

/// Returns both addresses; empty for this host. The launcher's is the one that this node connected to.
std::pair<std::string, std::string> addresses_of(int socket) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  std::array<char, NI_MAXHOST> text{};
  auto* generic = reinterpret_cast<sockaddr*>(&peer);
  if (::getpeername(socket, generic, &length) == 0)
    ::getnameinfo(generic, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return {"", text.data()};
}

class Agent {
 public:
  explicit Agent(std::string version)
      : version_(std::move(version)),
        orders_(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)),
        launcher_(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0), kMostWaiting) {}
  Agent(const LaunchRequest& own, int socket)
      : version_(own.version),
        own_(&own),
        orders_(::fcntl(socket, F_DUPFD_CLOEXEC, 0)),
        launcher_(socket, kMostWaiting),
        exit_code_(static_cast<int>(ExitCode::restart)) {}
  int run();

 private:
  void wait();
  void take_order(std::string_view line);
  void obey(const json& order);
  void greet(const json& order);
  void keep_own(StartOrder& order) const;
  void start(StartOrder order);
  void attend(RankProcess& rank);
  void take_signal(int signal);
  void end_ranks(std::chrono::seconds grace);
  void leave();
  bool has_ranks() const;
  bool is_known(pid_t process) const;
  void say(const json& message) { launcher_.insist(to_line(message)); }

  static constexpr size_t kMostWaiting = size_t{4} << 20;

  std::string version_;
  const LaunchRequest* own_ = nullptr;  // set if this node connected to node 0's launcher
  SignalReader signals_{SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
  LineReader orders_;
  LineWriter launcher_;
  int exit_code_ = 0;
  KernelLogProbe kernel_log_probe_;
  std::optional<ReservedPort> port_;  // of the newest attempt
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  Clock::time_point last_heard_ = Clock::now(), awake_ = Clock::now(), next_alive_ = Clock::now();
  std::optional<Clock::time_point> kill_at_;
  bool is_far_ = false, is_leaving_ = false;
  int own_ranks_ = 1;
};

int Agent::run() {
  while (!is_leaving_ || has_ranks()) {
    wait();
    if (Clock::now() - std::exchange(awake_, Clock::now()) > kOwnSleep) last_heard_ = Clock::now();
    while (const auto signal = signals_.next()) {
      if (*signal != SIGCHLD) take_signal(*signal);
    }
    for (auto& rank : ranks_) attend(*rank);
    if (is_init()) collect_orphans([this](pid_t process) { return is_known(process); });
    orders_.read([this](std::string_view line) { take_order(line); });
    const bool is_silent = is_far_ && Clock::now() - last_heard_ > kLongestSilence;
    if (orders_.is_at_end() || launcher_.is_broken() || is_silent) leave();
    if (kill_at_ && Clock::now() >= *kill_at_) {
      for (auto& rank : ranks_) rank->signal(SIGKILL);
    }
    if (Clock::now() >= next_alive_) {
      say({{"kind", "alive"}});
      next_alive_ = Clock::now() + kAliveEvery;
    }
    launcher_.flush();
  }
  return exit_code_;
}

void Agent::wait() {
  Poll poll;
  poll.add(signals_.descriptor());
  poll.add(orders_.descriptor());
  poll.add(launcher_.wants(), POLLOUT);
  for (const auto& rank : ranks_) rank->add_to(poll);
  poll.wake_at(next_alive_);
  if (kill_at_ && has_ranks()) poll.wake_at(std::max(*kill_at_, Clock::now() + std::chrono::milliseconds(20)));
  poll.wait();
}

bool Agent::has_ranks() const {
  return std::ranges::any_of(ranks_, [](const auto& rank) { return rank->is_running(); });
}

bool Agent::is_known(pid_t process) const {
  return std::ranges::any_of(ranks_, [process](const auto& rank) { return rank->process() == process; });
}

/// Handles a signal. A scheduler signals every node, a service manager every process. The launcher alone decides when
/// the ranks end, all together. Only an agent behind ssh ends its ranks when its host goes down.
void Agent::take_signal(int signal) {
  if (is_far_ && own_ == nullptr && signal != SIGUSR2) return leave();
  say({{"kind", "signal"}, {"signal", signal}});
}

/// Ends, because the launcher is gone or is done with us.
void Agent::leave() {
  if (std::exchange(is_leaving_, true)) return;
  end_ranks(kEndGrace);
}

void Agent::end_ranks(std::chrono::seconds grace) {
  for (auto& rank : ranks_) rank->signal(SIGTERM);
  const auto moment = Clock::now() + grace;
  kill_at_ = kill_at_ ? std::min(*kill_at_, moment) : moment;
}

void Agent::take_order(std::string_view line) {
  last_heard_ = Clock::now();
  const auto order = read_message(line);
  try {
    if (order) obey(*order);
  } catch (const Error& error) {
    say({{"kind", "problem"}, {"text", error.what()}});
  } catch (const std::exception& error) {  // a malformed order, a file system error
    say({{"kind", "problem"}, {"text", error.what()}});
  }
}

void Agent::obey(const json& order) {
  const std::string kind = order.at("kind");
  if (kind == "hello") greet(order);
  if (kind == "find_port") say({{"kind", "port"}, {"port", port_.emplace().number()}});
  if (kind == "start") start(order.at("order").get<StartOrder>());
  if (kind == "stop") end_ranks(std::chrono::seconds(order.at("grace").get<int>()));
  if (kind == "goodbye") {
    if (own_ != nullptr) exit_code_ = order.at("exit").get<int>();
    leave();
  }
  if (kind == "signal") {
    for (auto& rank : ranks_) rank->signal(order.at("signal").get<int>());
  }
}

void Agent::greet(const json& order) {
  is_far_ = order.at("is_far").get<bool>();
  const std::string folder = order.at("folder");
  if (own_ == nullptr && ::chdir(folder.c_str()) != 0) {
    throw Error(ExitCode::environment,
                {.what = "the folder " + folder + " does not exist",
                 .hint = "the job, its data and the working folder must have the same path on every host"});
  }
  const int gpus = order.at("device") == "cpu" ? 0 : gpus_here();
  own_ranks_ = std::max(gpus, 1);
  if (own_ != nullptr) own_ranks_ = own_->plan.hosts[0].ranks.value_or(own_ranks_);
  const auto [own, launchers] = own_ != nullptr ? addresses_of(orders_.descriptor()) : addresses_of_ssh();
  say({{"kind", "ready"},
       {"protocol", kProtocol},
       {"version", version_},
       {"ranks", own_ranks_},
       {"address", own},
       {"launcher_address", launchers}});
}

/// Keeps this node's own command, variables and log folder, and takes from the connection only when to start and as
/// which ranks, because anyone could have opened it.
void Agent::keep_own(StartOrder& order) const {
  if (order.ranks != own_ranks_) {
    throw Error(ExitCode::internal, {.what = "node 0 wants " + std::to_string(order.ranks) +
                                             " ranks on this node, which has " + std::to_string(own_ranks_)});
  }
  // A later attempt may have to resume from what was saved since; only node 0's launcher knows.
  const std::vector<std::string> go_on{"--set", "checkpoint.resume=auto"};
  const bool goes_on = order.command.size() > 2 && std::equal(go_on.begin(), go_on.end(), order.command.end() - 2);
  order.command = own_->command();
  if (goes_on) order.command.insert(order.command.end(), go_on.begin(), go_on.end());
  order.environment = own_->environment;
  const auto& folder = own_->run_folder;
  order.logs = folder.empty() ? folder : folder / "logs" / ("start_" + std::to_string(order.attempt));
}

void Agent::start(StartOrder order) {
  if (has_ranks()) throw Error(ExitCode::internal, {.what = "ranks of the previous start still run"});
  if (own_ != nullptr) keep_own(order);
  ranks_.clear();
  kill_at_.reset();
  Child::Options options{.argv = order.command, .environment = {}};
  options.argv.insert(options.argv.begin(), own_program());
  bool has_told = false;
  for (int local = 0; local < order.ranks; ++local) {
    const int rank = order.first_rank + local;
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "rank_%04d.log", rank);
    options.environment = environment_of_rank(order, local);
    const std::filesystem::path logs = order.logs;
    ranks_.push_back(std::make_unique<RankProcess>(rank, options, logs.empty() ? logs : logs / name.data()));
    const std::string& problem = ranks_.back()->log_problem();
    if (!problem.empty() && !std::exchange(has_told, true)) say({{"kind", "no_log"}, {"text", problem}});
  }
}

void Agent::attend(RankProcess& rank) {
  const RankProcess::Line tell = [&](std::string_view line, bool is_error) {
    // Lines may be lost if nobody reads them in time; the log file has them all.
    launcher_.write(to_line({{"kind", "line"}, {"rank", rank.rank()}, {"is_error", is_error}, {"text", line}}));
  };
  const auto status = rank.look(tell);
  if (!status) return rank.read(tell);
  if (!status->is_end()) {
    say({{"kind", "fate"},
         {"rank", rank.rank()},
         {"stopped", status->kind == ProcessStatus::Kind::stopped},
         {"signal", status->number}});
    return;
  }
  RankEnd end = rank.end(*status);
  if (!status->went_well()) {
    if (const auto sign = kernel_log_probe_.since_last(end.process); !sign.empty()) end.clue = sign;
  }
  say({{"kind", "exit"}, {"end", end}});
}

}  // namespace

int serve_agent(const std::string& version) {
  std::signal(SIGPIPE, SIG_IGN);
  return Agent(version).run();
}

int serve_node(const LaunchRequest& own, int socket) {
  std::signal(SIGPIPE, SIG_IGN);
  return Agent(own, socket).run();
}

}  // namespace gputrain::launch
