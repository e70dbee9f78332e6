#include "gputrain/doctor/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "gputrain/monitor/format.hpp"

namespace gputrain::doctor {
namespace {

using HostsByValue = std::map<std::string, std::vector<std::string>>;

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

HostsByValue values_of(const std::string& fact, const std::vector<HostReport>& reports) {
  HostsByValue values;
  for (const HostReport& report : reports) {
    if (!report.problem.empty()) continue;
    std::string value;
    for (const Finding& finding : report.findings) {
      const auto found = finding.facts.find(fact);
      if (found != finding.facts.end()) value = found->second;
    }
    values[value.empty() ? "none" : value].push_back(report.host);
  }
  return values;
}

std::string difference_text(const std::string& fact, const HostsByValue& values) {
  size_t hosts = 0;
  auto usual = values.begin();
  for (auto each = values.begin(); each != values.end(); ++each) {
    hosts += each->second.size();
    if (each->second.size() > usual->second.size()) usual = each;
  }
  const bool has_majority = 2 * usual->second.size() > hosts;
  std::string text;
  for (auto each = values.begin(); each != values.end(); ++each) {
    if (has_majority && each == usual) continue;
    text += (text.empty() ? "" : "; ") + each->first + " on " + joined(each->second);
  }
  return fact + ": " + text + (has_majority ? ", but " + usual->first + " on all others" : "");
}

/// Returns whether ranks cannot work together unless this is equal.
bool is_necessary(const std::string& fact) {
  static const std::set<std::string> kNecessary{"gputrain", "torch", "CUDA", "cuDNN", "NCCL"};
  return kNecessary.contains(fact);
}

std::string fix_of(const std::string& fact) {
  if (is_necessary(fact) || fact == "build") return "install the same gputrain on all hosts";
  if (fact == "MTU") return "sudo ip link set dev INTERFACE mtu VALUE on the odd hosts";
  if (fact == "driver") return "install the same driver on all hosts";
  if (fact == "congestion control") return "sudo sysctl net.ipv4.tcp_congestion_control=VALUE on the odd hosts";
  return {};
}

constexpr double kMostSeconds = 1;

/// Returns the middle of the numbers. If their count is even, it is the one of the middle two that is nearer to zero.
double middle(std::vector<double> numbers) {
  std::ranges::sort(numbers);
  const double low = numbers[(numbers.size() - 1) / 2], high = numbers[numbers.size() / 2];
  return std::abs(low) <= std::abs(high) ? low : high;
}

Finding clock_finding(const std::string& whose, double ahead, const std::string& than) {
  constexpr double kRefused = 300;  // Kerberos, signed requests to storage, young certificates
  Finding found{.check = "clock",
                .verdict = Verdict::warn,
                .text = "the clock " + whose + " is " + monitor::duration(std::abs(ahead)) +
                        (ahead < 0 ? " behind " : " ahead of ") + than +
                        ": logs and times of files of hosts do not match",
                .fix = "sudo timedatectl set-ntp true there"};
  if (std::abs(ahead) > kRefused) found.text += ", and logins and certificates may be refused";
  return found;
}

std::optional<double> write_speed_of_others(const std::vector<HostReport>& reports, size_t but) {
  std::vector<double> speeds;
  for (size_t i = 0; i < reports.size(); ++i) {
    if (i != but && reports[i].write_speed) speeds.push_back(*reports[i].write_speed);
  }
  return speeds.empty() ? std::nullopt : std::optional(middle(std::move(speeds)));
}

}  // namespace

Findings compare(const std::vector<HostReport>& reports) {
  std::vector<std::string> facts;  // in the order of the page
  for (const HostReport& report : reports) {
    for (const Finding& finding : report.findings) {
      for (const auto& [fact, value] : finding.facts) {
        if (std::ranges::find(facts, fact) == facts.end()) facts.push_back(fact);
      }
    }
  }
  Findings findings;
  for (const std::string& fact : facts) {
    const HostsByValue values = values_of(fact, reports);
    if (values.size() < 2) continue;
    findings.push_back({.check = "differs",
                        .verdict = is_necessary(fact) ? Verdict::bad : Verdict::warn,
                        .text = difference_text(fact, values),
                        .fix = fix_of(fact)});
  }
  return findings;
}

Findings clock_findings(const std::vector<ClockReading>& readings) {
  std::vector<double> aheads{0};  // ours
  for (const ClockReading& reading : readings) aheads.push_back(reading.ahead);
  const double usual = middle(std::move(aheads));
  const bool is_ours = std::abs(usual) <= kMostSeconds;
  Findings findings;
  for (const ClockReading& reading : readings) {
    const double off = is_ours ? reading.ahead : reading.ahead - usual;
    if (std::abs(off) - reading.doubt > kMostSeconds)
      findings.push_back(clock_finding("of " + reading.host, off, is_ours ? "ours" : "that of most hosts"));
  }
  if (!is_ours) findings.push_back(clock_finding("of this machine", -usual, "that of most hosts"));
  return findings;
}

std::vector<size_t> slow_disks(const std::vector<HostReport>& reports) {
  std::vector<size_t> slow;
  for (size_t i = 0; i < reports.size(); ++i) {
    const auto usual = write_speed_of_others(reports, i);
    if (reports[i].write_speed && usual && 3 * *reports[i].write_speed < *usual) slow.push_back(i);
  }
  return slow;
}

Findings disk_findings(const std::vector<HostReport>& reports) {
  Findings findings;
  for (const size_t i : slow_disks(reports)) {
    findings.push_back({.check = "disk",
                        .verdict = Verdict::warn,
                        .text = reports[i].host + " writes " + monitor::bytes(*reports[i].write_speed) + "/s, others " +
                                monitor::bytes(*write_speed_of_others(reports, i)) +
                                "/s: each save waits for the slowest",
                        .fix = "on " + reports[i].host + ": findmnt -T FOLDER, gputrain doctor --bench there"});
  }
  return findings;
}

}  // namespace gputrain::doctor
