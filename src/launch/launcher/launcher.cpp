#include "gputrain/launch/launcher.hpp"

#include <algorithm>
#include <csignal>
#include <exception>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "attempt.hpp"
#include "exit_report.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/process.hpp"
#include "host_link.hpp"
#include "join.hpp"
#include "log_folders.hpp"
#include "node_listener.hpp"
#include "terminal.hpp"

namespace gputrain::launch {
namespace {

constexpr std::chrono::seconds kFirstMeeting{30}, kBetweenTries{3};
constexpr std::chrono::milliseconds kShortWait{500};

Clock::duration seconds_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class Launcher {
 public:
  explicit Launcher(const LaunchRequest& request);
  ~Launcher();
  int run();

 private:
  enum class Gathered { enough, too_few, stopped };
  Gathered gather();
  void connect_missing();
  std::vector<HostLink*> ready_links() const;
  [[noreturn]] void refuse_unreachable() const;
  Attempt::MasterEndpoint find_master(const std::vector<HostLink*>& links);
  bool run_attempt();
  bool restart_after(Attempt& attempt);
  bool go_on_where_way_was_made(Attempt& attempt);
  std::optional<bool> answer_refusal(const Attempt& attempt);
  bool made_progress();
  void back_off();
  void finish(ExitReport report, std::string restarts);
  void pump(Attempt* attempt, std::optional<Clock::time_point> latest);
  void take_signals(Attempt* attempt);
  void take_signal(int signal, const HostLink* node, Attempt* attempt);
  std::string welcome(int node, int socket);
  bool is_known(pid_t process) const;
  bool is_short_of_hosts(const Attempt& attempt) const;
  void take_back(Attempt& attempt);
  const HostLink* missing() const;

  const LaunchRequest& request_;
  SignalReader signals_{SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
  Terminal terminal_;
  std::optional<NodeListener> node_listener_;
  std::vector<std::unique_ptr<HostLink>> links_;
  Clock::time_point next_try_{};
  std::optional<int> port_;
  LogFolders logs_;
  int attempts_ = 0, restarts_ = 0, without_progress_ = 0;
  std::optional<int64_t> furthest_;
  int stop_signal_ = 0;
  std::set<const HostLink*> have_interrupted_;  // senders of SIGINT; null: this process
  int exit_code_ = 0;
  bool has_checked_ = false;
};

Launcher::Launcher(const LaunchRequest& request)
    : request_(request), terminal_(request.measures), logs_(request.run_folder) {
  if (!request.node) {
    for (const auto& host : request.plan.hosts)
      links_.push_back(std::make_unique<HostLink>(host, request.version, request.device));
    return;
  }
  const NodeContext& context = *request.node;
  links_.push_back(std::make_unique<HostLink>(request.plan.hosts[0], request.version, request.device));
  for (int node = 1; node < context.nodes; ++node)
    links_.push_back(HostLink::to_node(node, request.version, request.device));
  if (context.nodes > 1) {
    node_listener_.emplace(context, node_hello_of(request));
    terminal_.say(text_of(context) + ": waiting for the other nodes");
  }
}

Launcher::~Launcher() {
  const bool is_failing = std::uncaught_exceptions() > 0;  // exceptions here come from hosts or this machine
  const int code = is_failing ? static_cast<int>(ExitCode::environment) : exit_code_;
  for (auto& link : links_) link->send({{"kind", "goodbye"}, {"exit", code}});
  const auto latest = Clock::now() + kEndGrace;
  const auto is_away = [](const auto& link) { return !link->has_agent(); };
  try {
    while (!std::ranges::all_of(links_, is_away) && Clock::now() < latest) pump(nullptr, latest);
  } catch (const std::exception&) {  // we end anyway; the links end what is left
  }
}

int Launcher::run() {
  bool goes_on = true;
  while (goes_on) {
    switch (gather()) {
      case Gathered::enough:
        goes_on = run_attempt();
        break;
      case Gathered::too_few:
        return exit_code_;  // of the previous attempt, already reported
      case Gathered::stopped:
        goes_on = false;
        break;
    }
  }
  return exit_code_;
}

std::vector<HostLink*> Launcher::ready_links() const {
  std::vector<HostLink*> ready;
  for (const auto& link : links_) {
    const bool is_ready = link->state() == HostLink::State::ready && !link->is_leaving();
    if (is_ready && static_cast<int>(ready.size()) < request_.plan.count.most) ready.push_back(link.get());
  }
  return ready;
}

void Launcher::connect_missing() {
  for (auto& link : links_) {
    if (link->state() == HostLink::State::away) link->connect();
  }
  next_try_ = Clock::now() + kBetweenTries;
}

const HostLink* Launcher::missing() const {
  for (const auto& link : links_) {
    if (!link->has_agent()) return link.get();
  }
  return nullptr;
}

/// Refuses hosts that cannot be reached: at the start the user must fix them; later they may come back.
void Launcher::refuse_unreachable() const {
  const HostLink* link = missing();
  throw Error(
      ExitCode::environment,
      {.what = link == nullptr ? "not enough hosts answer" : link->loss(),
       .where = link == nullptr ? "" : link->name(),
       .hint = link == nullptr || link->is_here() ? ""
               : node_listener_ ? "check the output of its own launcher, and that no firewall blocks the port"
                                : "`ssh -o BatchMode=yes " + link->name() +
                                      " true` must work without a prompt: use a key without passphrase or an ssh "
                                      "agent, and add the host to known_hosts"});
}

Launcher::Gathered Launcher::gather() {
  const bool is_first = attempts_ == 0;
  const auto latest = Clock::now() + (is_first && !node_listener_ ? Clock::duration(kFirstMeeting)
                                                                  : seconds_of(request_.host_timeout_seconds));
  const auto& count = request_.plan.count;
  connect_missing();
  for (;;) {
    if (stop_signal_ != 0) return Gathered::stopped;
    const int ready = static_cast<int>(ready_links().size());
    const bool is_trying =
        std::ranges::any_of(links_, [](const auto& link) { return link->state() == HostLink::State::connecting; });
    if (ready >= count.most || (ready >= count.least && !is_trying)) return Gathered::enough;
    if (is_first && !node_listener_ && !is_trying) refuse_unreachable();
    if (Clock::now() >= latest) {
      if (ready >= count.least) return Gathered::enough;
      if (is_first) refuse_unreachable();
      const HostLink* link = missing();
      terminal_.page("launch  only " + counted(ready, "host") + " of at least " + std::to_string(count.least) +
                     (link == nullptr ? "" : "; " + link->name() + ": " + link->loss()));
      return Gathered::too_few;
    }
    if (!is_trying && Clock::now() >= next_try_) connect_missing();
    pump(nullptr, is_trying ? latest : std::min(latest, next_try_));
  }
}

/// Finds where the ranks meet: on the first host, at the address by which the others reach it.
Attempt::MasterEndpoint Launcher::find_master(const std::vector<HostLink*>& links) {
  Attempt::MasterEndpoint master{.address = "127.0.0.1", .port = request_.master_port};
  if (links.size() > 1) {
    master.address = links[0]->address();
    for (size_t i = 1; links[0]->is_here() && i < links.size() && master.address.empty(); ++i)
      master.address = links[i]->launcher_address();
    if (master.address.empty()) master.address = links[0]->name();
  }
  if (master.port != 0) return master;
  port_.reset();
  links[0]->send({{"kind", "find_port"}});
  while (!port_ && links[0]->state() == HostLink::State::ready) pump(nullptr, std::nullopt);
  master.port = port_.value_or(0);
  return master;
}

/// Returns whether to start another attempt.
bool Launcher::run_attempt() {
  const auto links = ready_links();
  const auto master = find_master(links);
  if (master.port == 0) return true;  // the first host has just been lost
  ++attempts_;
  const std::string logs = logs_.next();
  Attempt attempt(request_, links, terminal_);
  attempt.start({.number = logs_.number(), .restarts = attempts_ - 1, .logs = logs, .master = master});
  if (stop_signal_ != 0) attempt.ask_to_stop(stop_signal_);
  while (!attempt.is_over()) {
    pump(&attempt, std::nullopt);
    take_back(attempt);
  }
  const auto result = attempt.result();
  exit_code_ = result.exit_code;
  if (result.kind == Attempt::Kind::grows && stop_signal_ == 0) {
    terminal_.say("a host is back: the run goes on with " + counted(std::ssize(ready_links()), "host") + " " +
                  resume_text(request_.state()));
    return true;
  }
  if (result.kind == Attempt::Kind::failed) {
    if (const auto goes_on = answer_refusal(attempt)) return *goes_on;
    return restart_after(attempt);
  }
  if (result.kind == Attempt::Kind::makes_way && stop_signal_ == 0) return go_on_where_way_was_made(attempt);
  if (result.kind == Attempt::Kind::makes_way)
    terminal_.say("the ranks had ended before the request came; exit " + std::to_string(exit_code_));
  else if (result.kind != Attempt::Kind::done)
    terminal_.say("stopped on request; exit " + std::to_string(exit_code_));
  return false;
}

/// Decides how to go on after ranks made way. If the time on this machine is over, we end too: whoever limited it
/// starts the command again. After a notice the run leaves that host if enough others remain. Ranks that were asked to
/// make way are started again.
bool Launcher::go_on_where_way_was_made(Attempt& attempt) {
  const RunState state = request_.state();
  const bool is_notice = state.stopped_by == "notice";
  if (!is_notice && state.stopped_by != "limits.max_duration") {
    attempt.blame_who_made_way();
    return restart_after(attempt);
  }
  std::string names;
  if (is_notice) {
    for (HostLink* link : attempt.leaving_hosts()) {
      if (!link->is_leaving()) names += (names.empty() ? "" : ", ") + link->name();
      link->leave();
    }
  }
  const auto left = std::ssize(ready_links());
  const bool stays_here =
      std::ranges::none_of(links_, [](const auto& link) { return link->is_here() && link->is_leaving(); });
  if (is_notice && stays_here && !names.empty() && left >= request_.plan.count.least) {
    const bool is_one = names.find(',') == std::string::npos;
    terminal_.say(names + (is_one ? " is" : " are") + " about to be taken away: the run goes on with " +
                  counted(left, "host") + " " + resume_text(state));
    return true;
  }
  terminal_.say("the ranks have made way; exit " + std::to_string(exit_code_) + ", " + state.again + " goes on " +
                resume_text(state));
  return false;
}

/// Answers ranks that refuse the job and may leave the message to us. Returns whether to try again; empty: it is valid.
std::optional<bool> Launcher::answer_refusal(const Attempt& attempt) {
  const Cause cause = attempt.report().cause;
  const bool is_usage = cause.exit_code() == static_cast<int>(ExitCode::usage);
  if (!is_usage || !request_.check_job || std::exchange(has_checked_, true)) return std::nullopt;
  terminal_.flush();
  const int code = request_.check_job();
  if (code == 0 && !cause.end.tail.empty()) return std::nullopt;
  if (code == 0) return stop_signal_ == 0;  // the job was fixed meanwhile
  exit_code_ = code;
  logs_.remove_traces();
  return false;
}

bool Launcher::is_short_of_hosts(const Attempt& attempt) const {
  return !attempt.is_ending() && attempt.hosts() < static_cast<size_t>(request_.plan.count.most);
}

/// Takes back a lost host that has come back: the ranks save, end and start once more.
void Launcher::take_back(Attempt& attempt) {
  if (!is_short_of_hosts(attempt)) return;
  if (ready_links().size() > attempt.hosts()) return attempt.ask_to_grow();
  const bool is_trying =
      std::ranges::any_of(links_, [](const auto& link) { return link->state() == HostLink::State::connecting; });
  if (!is_trying && Clock::now() >= next_try_) connect_missing();
}

bool Launcher::made_progress() {
  const auto now = request_.state().checkpoint_step;
  if (!now || (furthest_ && *now <= *furthest_)) return false;
  furthest_ = now;
  return true;
}

bool Launcher::restart_after(Attempt& attempt) {
  ExitReport report = attempt.report();
  const Cause& cause = report.cause;
  const bool progressed = made_progress();
  without_progress_ = progressed ? 1 : without_progress_ + 1;
  // If the number of hosts may vary, a lost host costs no restart as long as training makes progress.
  const bool is_free =
      cause.kind == Cause::Kind::host_lost && request_.plan.count.least < request_.plan.count.most && progressed;
  if (!is_free) ++restarts_;
  if (stop_signal_ != 0) return finish(std::move(report), ""), false;
  if (!cause.allows_restart())
    return finish(std::move(report), request_.max_restarts == 0 ? "" : "a restart would not help"), false;
  if (restarts_ > request_.max_restarts) {
    const std::string limit = "launch.max_restarts: " + std::to_string(request_.max_restarts);
    return finish(std::move(report), request_.max_restarts == 0 ? "" : "no restart is left (" + limit + ")"), false;
  }
  terminal_.say(cause.text() + (cause.end.clue.empty() ? "" : " (" + cause.end.clue + ")"));
  terminal_.say((is_free
                     ? "start again "
                     : "restart " + std::to_string(restarts_) + " of " + std::to_string(request_.max_restarts) + " ") +
                resume_text(report.state) + "; what the ranks have said is in " + attempt.logs());
  back_off();
  return stop_signal_ == 0;
}

/// Waits 1 s, 2 s, 4 s, ... while there is no progress.
void Launcher::back_off() {
  const auto latest =
      Clock::now() + std::min(std::chrono::seconds(60), std::chrono::seconds(1 << std::min(without_progress_ - 1, 6)));
  while (stop_signal_ == 0 && Clock::now() < latest) pump(nullptr, latest);
}

void Launcher::finish(ExitReport report, std::string restarts) {
  report.restarts = std::move(restarts);
  terminal_.page(report.page());
}

void Launcher::take_signals(Attempt* attempt) {
  while (const auto signal = signals_.next()) {
    if (*signal != SIGCHLD) take_signal(*signal, nullptr, attempt);
  }
}

/// Handles a signal. A scheduler signals all its nodes, each node passes that on, and SIGTERM follows SIGUSR1: neither
/// may cut short the save under way. A second SIGINT from the same sender ends the ranks at once.
void Launcher::take_signal(int signal, const HostLink* node, Attempt* attempt) {
  if (signal == SIGUSR2) {
    if (attempt != nullptr) attempt->pass_on(SIGUSR2);
    return;
  }
  const bool insists = signal == SIGINT && !have_interrupted_.insert(node).second;
  if (stop_signal_ != 0 && !insists) return;
  stop_signal_ = signal == SIGHUP ? SIGTERM : signal;
  exit_code_ = stop_signal_ == SIGUSR1 ? static_cast<int>(ExitCode::restart) : 128 + stop_signal_;
  if (attempt == nullptr) return;
  insists ? attempt->insist() : attempt->ask_to_stop(stop_signal_);
}

std::string Launcher::welcome(int node, int socket) {
  return links_[static_cast<size_t>(node)]->welcome(socket) ? ""
                                                            : "node " + std::to_string(node) + " is already connected";
}

bool Launcher::is_known(pid_t process) const {
  return std::ranges::any_of(links_, [process](const auto& link) { return link->process() == process; });
}

/// Waits for the next event, at most until `latest`, and handles it.
void Launcher::pump(Attempt* attempt, std::optional<Clock::time_point> latest) {
  Poll poll;
  poll.add(signals_.descriptor());
  terminal_.add_to(poll);
  for (const auto& link : links_) link->add_to(poll);
  if (node_listener_) node_listener_->add_to(poll);
  if (latest) poll.wake_at(*latest);
  if (attempt != nullptr) poll.wake_at(attempt->next_deadline());
  if (attempt != nullptr && is_short_of_hosts(*attempt)) poll.wake_at(std::max(next_try_, Clock::now() + kShortWait));
  poll.wait();
  take_signals(attempt);
  if (node_listener_) node_listener_->attend([this](int node, int socket) { return welcome(node, socket); });
  for (auto& link : links_) {
    link->attend([&](const nlohmann::json& message) {
      if (message.at("kind") == "port") port_ = message.at("port").get<int>();
      if (message.at("kind") == "problem" && attempt == nullptr)
        throw Error(ExitCode::environment, {.what = message.at("text"), .where = link->name()});
      // Signals on a host that is being left no longer concern the run.
      if (message.at("kind") == "signal" && !link->is_leaving())
        take_signal(message.at("signal").get<int>(), link.get(), attempt);
      if (attempt != nullptr) attempt->take(*link, message);
    });
  }
  if (attempt != nullptr) attempt->look();
  if (is_init()) collect_orphans([this](pid_t process) { return is_known(process); });
  terminal_.flush();
}

}  // namespace

int launch(const LaunchRequest& request) {
  std::signal(SIGPIPE, SIG_IGN);
  if (request.node && request.node->node > 0) return join(request);
  return Launcher(request).run();
}

}  // namespace gputrain::launch
