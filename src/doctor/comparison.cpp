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

/// Without these being equal ranks cannot work together.
bool is_necessary(const std::string& fact) {
  static const std::set<std::string> kNecessary{"gputrain", "torch", "CUDA", "cuDNN", "NCCL"};
  return kNecessary.contains(fact);
}

std::string fix_of(const std::string& fact) {
  if (is_necessary(fact)) return "install the same gputrain on all hosts";
  if (fact == "MTU") return "sudo ip link set dev INTERFACE mtu VALUE on the odd hosts";
  if (fact == "driver") return "install the same driver on all hosts";
  if (fact == "congestion control") return "sudo sysctl net.ipv4.tcp_congestion_control=VALUE on the odd hosts";
  return {};
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

Finding clock_finding(const std::string& host, double seconds) {
  constexpr double kMost = 1;
  Finding found{.check = "clock",
                .text = "the clock of " + host + " is " + monitor::duration(std::abs(seconds)) +
                        (seconds < 0 ? " behind ours" : " ahead of ours")};
  if (std::abs(seconds) > kMost) {
    found.verdict = Verdict::warn;
    found.text += ": logs of hosts will not match";
    found.fix = "sudo timedatectl set-ntp true on " + host;
  }
  return found;
}

}  // namespace gputrain::doctor
