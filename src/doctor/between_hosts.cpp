#include "between_hosts.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <utility>

#include "gputrain/doctor/rates.hpp"

namespace gputrain::doctor {
namespace {

constexpr std::chrono::seconds kDiskTime{60};

bool is_examined(const HostReport& report) { return report.problem.empty(); }

/// Returns how far the host's clock is ahead of ours, by the quickest of a few answers.
std::optional<ClockReading> read_clock(launch::RemoteProgram& host) {
  constexpr int kQuestions = 5;
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  std::optional<ClockReading> best;
  for (int i = 0; i < kQuestions; ++i) {
    const double begin = now();
    const auto there = number_of(ask(host, "time"));
    const double doubt = (now() - begin) / 2;
    if (!there) return best;
    if (!best || doubt < best->doubt) best = {.host = host.host(), .ahead = *there - (begin + doubt), .doubt = doubt};
  }
  return best;
}

/// Returns the port at which the host takes connections, or why not, in words.
std::string port_at(launch::RemoteProgram& host, const std::string& question, const std::string& address) {
  return ask(host, question + " " + address).value_or("no answer");
}

bool is_port(const std::string& answer) {
  return !answer.empty() && answer.find_first_not_of("0123456789") == std::string::npos;
}

/// Returns the bytes per second from one host to another; 0: they are not connected.
double network_rate(const Serving& hosts, const std::vector<HostReport>& reports, size_t from, size_t to) {
  const std::string port = port_at(*hosts[to], "take", reports[to].address);
  if (!is_port(port)) return 0;
  return number_of(ask(*hosts[from], "send " + reports[to].address + " " + port, std::chrono::seconds(30))).value_or(0);
}

}  // namespace

std::optional<std::string> ask(launch::RemoteProgram& host, const std::string& question,
                               std::chrono::seconds patience) {
  host.tell(question);
  return host.line(Clock::now() + patience);
}

std::optional<double> number_of(const std::optional<std::string>& answer) {
  double number = 0;
  if (!answer) return std::nullopt;
  const char* end = answer->data() + answer->size();
  const auto read = std::from_chars(answer->data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? std::optional(number) : std::nullopt;
}

Findings compare_clocks(const Serving& hosts, const std::vector<HostReport>& reports) {
  Findings findings;
  std::vector<ClockReading> readings;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (!is_examined(reports[i])) continue;
    if (auto reading = read_clock(*hosts[i])) {
      readings.push_back(std::move(*reading));
    } else {
      findings.push_back({.check = "clock",
                          .verdict = Verdict::warn,
                          .text = hosts[i]->host() + " does not say what time it is there"});
    }
  }
  for (Finding& finding : clock_findings(readings)) findings.push_back(std::move(finding));
  return findings;
}

Findings closed_ways(const Serving& hosts, const std::vector<HostReport>& reports) {
  constexpr size_t kFew = 16;
  Findings findings;
  for (size_t to = 0; to < hosts.size(); ++to) {
    if (!is_examined(reports[to]) || reports[to].address.empty()) continue;
    const std::string port = port_at(*hosts[to], "listen", reports[to].address);
    if (!is_port(port)) {
      findings.push_back({.check = "ports",
                          .verdict = Verdict::bad,
                          .text = hosts[to]->host() + " cannot take connections: " + port,
                          .fix = "check the addresses of its network interfaces"});
      continue;
    }
    for (size_t from = 0; from < hosts.size(); ++from) {
      const bool is_asked = hosts.size() <= kFew || to == 0 || from == 0 || from + 1 == to;
      if (from == to || !is_asked || !is_examined(reports[from])) continue;
      const auto answer = ask(*hosts[from], "reach " + reports[to].address + " " + port);
      if (answer == "ok") continue;
      findings.push_back({.check = "ports",
                          .verdict = Verdict::bad,
                          .text = hosts[from]->host() + " cannot connect to " + hosts[to]->host() + " (" +
                                  reports[to].address + "): " + answer.value_or("no answer"),
                          .fix = "open all TCP ports between these hosts, in both directions"});
    }
  }
  return findings;
}

Findings folders_apart(const Serving& hosts, const std::vector<HostReport>& reports) {
  constexpr std::chrono::seconds kAnswerTime{10};
  const auto first = std::ranges::find_if(reports, is_examined);
  if (first == reports.end() || first->run_folder.empty()) return {};
  const auto number = static_cast<size_t>(first - reports.begin());
  const auto place = ask(*hosts[number], "mark " + first->run_folder);
  if (!place || place->find(".gputrain-") == std::string::npos) return {};  // nothing can be written there
  const auto is_asked = [&](size_t i) { return i != number && is_examined(reports[i]); };
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (is_asked(i)) hosts[i]->tell("see " + *place + " " + reports[i].run_folder);
  }
  std::string blind;
  size_t count = 0;
  const auto deadline = Clock::now() + kAnswerTime;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (!is_asked(i) || hosts[i]->line(deadline) != "no") continue;
    blind += (blind.empty() ? "" : ", ") + hosts[i]->host();
    ++count;
  }
  if (count == 0) return {};
  const std::string what = blind + (count == 1 ? " does not see " : " do not see ") + first->run_folder + " of " +
                           first->host + ": it is not on a shared disk";
  if (!first->shares_saves) {
    return {{.check = "folder",
             .verdict = Verdict::warn,
             .text = what + "; the run trains, but to go on every host must read its checkpoints",
             .fix = "another --output-dir that all hosts see, or checkpoint.mirror in such a folder"}};
  }
  return {{.check = "folder",
           .verdict = Verdict::bad,
           .text = what + ", and every checkpoint has parts from all hosts",
           .fix = "another --output-dir that all hosts see, or mount one disk there on every host"}};
}

void measure_disks(const Serving& hosts, std::vector<HostReport>& reports, const std::string& folder) {
  const auto question = [&](size_t i) { return "disk " + (reports[i].folder.empty() ? folder : reports[i].folder); };
  // A full disk, or one of a host that could not be examined, is not measured.
  const auto is_measured = [&](const HostReport& report) {
    const auto is_unfit = [](const Finding& found) { return found.check == "disk" && found.verdict == Verdict::bad; };
    return is_examined(report) && std::ranges::none_of(report.findings, is_unfit);
  };
  std::vector<size_t> measured;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (is_measured(reports[i])) measured.push_back(i);
  }
  for (const size_t i : measured) hosts[i]->tell(question(i));
  const auto deadline = Clock::now() + kDiskTime;
  for (const size_t i : measured) {
    const auto answer = hosts[i]->line(deadline);
    reports[i].write_speed = number_of(answer);
    if (!answer) {  // a later answer would be taken for one to another question
      reports[i].problem = "its disk has not answered within 60 s";
    } else if (!reports[i].write_speed && answer != "no such folder") {
      reports[i].findings.push_back({.check = "disk", .verdict = Verdict::warn, .text = *answer});
    }
  }
  for (const size_t i : slow_disks(reports)) {
    const auto alone = number_of(ask(*hosts[i], question(i), kDiskTime));
    if (alone) reports[i].write_speed = std::max(*alone, *reports[i].write_speed);
  }
}

void measure_network(const Serving& hosts, std::vector<HostReport>& reports) {
  std::vector<size_t> ring;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (reports[i].rates && !reports[i].address.empty()) ring.push_back(i);
  }
  if (ring.size() < 2) return;
  std::set<std::pair<size_t, size_t>> ways;
  for (size_t at = 0; at < ring.size(); ++at) {
    const size_t one = ring[at], next = ring[(at + 1) % ring.size()];
    ways.insert({one, next});
    ways.insert({next, one});
  }
  std::vector<double> sent(hosts.size()), taken(hosts.size());
  for (const auto& [from, to] : ways) {
    const double rate = network_rate(hosts, reports, from, to);
    sent[from] = std::max(sent[from], rate);
    taken[to] = std::max(taken[to], rate);
  }
  for (const size_t i : ring) {
    const double rate = std::min(sent[i], taken[i]);
    reports[i].rates->rates.push_back(
        {.of = "network", .what = "one connection", .per_second = rate, .text = bytes_text(rate)});
  }
}

}  // namespace gputrain::doctor
