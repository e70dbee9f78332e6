#include "gputrain/doctor/hosts.hpp"

#include <charconv>
#include <chrono>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/lines.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/launch/child.hpp"
#include "gputrain/launch/host_command.hpp"

namespace gputrain::doctor {
namespace {

constexpr std::chrono::seconds kReportTime{90}, kAnswerTime{10};

/// A program that serve()s on a host.
class ServingHost {
 public:
  ServingHost(const launch::Host& host, const std::vector<std::string>& arguments)
      : name_(host.name),
        process_(
            {.argv = launch::command_on(host, arguments), .environment = launch::own_environment(), .has_input = true}),
        output_(process_.take_output()),
        errors_(process_.take_errors()),
        input_(process_.take_input(), size_t{1} << 16) {}

  const std::string& name() const { return name_; }
  /// The next line of its output; nothing at its end or at the deadline.
  std::optional<std::string> line(Clock::time_point deadline);
  std::optional<std::string> ask(const std::string& question) {
    input_.insist(question);
    return line(Clock::now() + kAnswerTime);
  }
  HostReport report(Clock::time_point deadline);

 private:
  void wait(Clock::time_point deadline);

  std::string name_;
  launch::Child process_;
  LineReader output_, errors_;
  LineWriter input_;
  std::deque<std::string> lines_;
  std::string remark_;  // its error message, or its last words
};

void ServingHost::wait(Clock::time_point deadline) {
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

std::optional<std::string> ServingHost::line(Clock::time_point deadline) {
  while (lines_.empty() && !output_.is_at_end() && Clock::now() < deadline) wait(deadline);
  while (output_.is_at_end() && !errors_.is_at_end() && Clock::now() < deadline) wait(deadline);  // why it has ended
  if (lines_.empty()) return std::nullopt;
  std::string first = std::move(lines_.front());
  lines_.pop_front();
  return first;
}

HostReport ServingHost::report(Clock::time_point deadline) {
  HostReport report{.host = name_};
  while (const auto text = line(deadline)) {  // a login shell may say something first
    const auto json = nlohmann::json::parse(*text, nullptr, false);
    if (!json.is_object() || !json.contains("findings")) continue;
    try {
      report.findings = findings_of(json.at("findings"));
      report.address = json.at("address");
    } catch (const nlohmann::json::exception& error) {
      report.problem = std::string("gputrain there sent an invalid report: ") + error.what();
    }
    return report;
  }
  const std::string words = remark_.starts_with("error: ") ? remark_.substr(7) : remark_;
  const bool is_late = Clock::now() >= deadline;
  report.problem = is_late ? "no report within 90 s" : words.empty() ? "it ended without a word" : words;
  return report;
}

/// How far the host's clock is ahead of ours, by the quickest of a few answers.
std::optional<double> clock_ahead(ServingHost& host) {
  constexpr int kQuestions = 5;
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  std::optional<double> ahead;
  double quickest = std::numeric_limits<double>::max();
  for (int i = 0; i < kQuestions; ++i) {
    const double begin = now();
    const auto answer = host.ask("time");
    const double took = now() - begin;
    if (!answer) return ahead;
    double there = 0;
    const auto read = std::from_chars(answer->data(), answer->data() + answer->size(), there);
    if (read.ec != std::errc() || took > quickest) continue;
    quickest = took;
    ahead = there - (begin + took / 2);
  }
  return ahead;
}

using Serving = std::vector<std::unique_ptr<ServingHost>>;

/// Whether every host can open connections to every other one; of many hosts, to the first one and to the next.
Findings closed_ways(const Serving& hosts, const std::vector<HostReport>& reports) {
  constexpr size_t kFew = 16;
  Findings findings;
  for (size_t to = 0; to < hosts.size(); ++to) {
    if (!reports[to].problem.empty() || reports[to].address.empty()) continue;
    const auto port = hosts[to]->ask("listen " + reports[to].address);
    if (!port || port->find_first_not_of("0123456789") != std::string::npos) {
      findings.push_back({.check = "ports",
                          .verdict = Verdict::bad,
                          .text = hosts[to]->name() + " cannot take connections: " + port.value_or("no answer"),
                          .fix = "check the addresses of its network interfaces"});
      continue;
    }
    for (size_t from = 0; from < hosts.size(); ++from) {
      const bool is_asked = hosts.size() <= kFew || to == 0 || from == 0 || from + 1 == to;
      if (from == to || !is_asked || !reports[from].problem.empty()) continue;
      const auto answer = hosts[from]->ask("reach " + reports[to].address + " " + *port);
      if (answer == "ok") continue;
      findings.push_back({.check = "ports",
                          .verdict = Verdict::bad,
                          .text = hosts[from]->name() + " cannot connect to " + hosts[to]->name() + " (" +
                                  reports[to].address + "): " + answer.value_or("no answer"),
                          .fix = "open all TCP ports between these hosts, in both directions"});
    }
  }
  return findings;
}

}  // namespace

ExaminedHosts examine(const std::vector<launch::Host>& hosts, const std::vector<std::string>& arguments) {
  Serving serving;
  for (const launch::Host& host : hosts) serving.push_back(std::make_unique<ServingHost>(host, arguments));
  ExaminedHosts all;
  const auto deadline = Clock::now() + kReportTime;
  for (const auto& host : serving) all.reports.push_back(host->report(deadline));
  for (size_t i = 0; i < serving.size(); ++i) {
    if (!all.reports[i].problem.empty()) continue;
    const auto ahead = clock_ahead(*serving[i]);
    Finding finding = ahead ? clock_finding(serving[i]->name(), *ahead)
                            : Finding{.check = "clock",
                                      .verdict = Verdict::warn,
                                      .text = serving[i]->name() + " does not say what time it is there"};
    if (finding.verdict != Verdict::ok) all.between.push_back(std::move(finding));
  }
  for (Finding& finding : closed_ways(serving, all.reports)) all.between.push_back(std::move(finding));
  for (Finding& finding : compare(all.reports)) all.between.push_back(std::move(finding));
  return all;
}

}  // namespace gputrain::doctor
