#include "gputrain/doctor/hosts.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "between_hosts.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/doctor/best_rates.hpp"
#include "gputrain/doctor/rates.hpp"

namespace gputrain::doctor {
namespace {

constexpr std::chrono::seconds kReportTime{90}, kRatesTime{180};

HostReport report_of(launch::RemoteProgram& host, Clock::time_point deadline) {
  HostReport report{.host = host.host()};
  while (const auto text = host.line(deadline)) {  // a login shell may say something first
    const auto json = parse_json(*text);
    if (!json.is_object() || !json.contains("findings")) continue;
    try {
      report.findings = findings_of(json.at("findings"));
      report.address = json.at("address");
      report.folder = json.value("folder", "");
      report.run_folder = json.value("run_folder", "");
      report.shares_saves = json.value("shares_saves", false);
    } catch (const nlohmann::json::exception& error) {
      report.problem = "gputrain there sent an invalid report: " + reason_in(error);
    }
    return report;
  }
  report.problem = Clock::now() >= deadline ? "no report within 90 s" : host.remark();
  return report;
}

void take_rates(launch::RemoteProgram& host, HostReport& report, Clock::time_point deadline) {
  const std::string answer = host.line(deadline).value_or("no rates within 180 s");
  try {
    report.rates = launch::machine_rates_of(parse_json(answer));
  } catch (const nlohmann::json::exception&) {
    report.findings.push_back({.check = "bench", .verdict = Verdict::bad, .text = "not measured: " + answer});
  }
}

/// Measures all hosts at the same time, and what is between them afterwards.
void measure_all(const Serving& serving, std::vector<HostReport>& reports, const ExamineRequest& request) {
  for (size_t i = 0; i < serving.size(); ++i) {
    const std::string folder = reports[i].folder.empty() ? request.folder : reports[i].folder;
    if (reports[i].problem.empty())
      serving[i]->tell("bench " + request.device + " " + std::to_string(request.least_percent) + " " + folder);
  }
  const auto deadline = Clock::now() + kRatesTime;
  for (size_t i = 0; i < serving.size(); ++i) {
    if (reports[i].problem.empty()) take_rates(*serving[i], reports[i], deadline);
  }
  measure_network(serving, reports);
}

/// Returns a finding for each rate that is too low, and one with all rates.
Findings judge(const launch::MachineRates& machine, double least_percent) {
  Findings findings;
  Finding all{.check = "rates", .text = machine.kind};
  for (Finding& finding : rate_findings(machine, least_percent)) {
    if (finding.verdict != Verdict::ok) findings.push_back(std::move(finding));
  }
  for (const launch::Rate& rate : machine.rates) all.text += "; " + rate.what + " " + rate.text;
  findings.push_back(std::move(all));
  return findings;
}

/// Keeps, in the file of this machine, what all hosts have reached, and the network's rate, which no host measures
/// alone. Returns why it cannot; empty: it does.
std::string judge_all(std::vector<HostReport>& reports, const BestRates& file, double least_percent) {
  std::vector<launch::MachineRates> machines;
  for (HostReport& report : reports) {
    if (!report.rates) continue;
    machines.push_back(*report.rates);
    for (const auto& [what, best] : file.of(report.rates->kind)) {
      double& known = machines.back().best[what];
      known = std::max(known, best);
    }
  }
  launch::share_best(machines);
  auto next = machines.begin();
  std::string problem;
  for (HostReport& report : reports) {
    if (!report.rates) continue;
    report.rates = *next++;
    for (Finding& finding : judge(*report.rates, least_percent)) report.findings.push_back(std::move(finding));
    if (problem.empty()) problem = file.keep(*report.rates);
  }
  return problem;
}

}  // namespace

ExaminedHosts examine(const ExamineRequest& request, const BestRates& best) {
  Serving serving;
  for (const launch::Host& host : request.hosts)
    serving.push_back(std::make_unique<launch::RemoteProgram>(host, request.arguments));
  ExaminedHosts all;
  const auto deadline = Clock::now() + kReportTime;
  for (const auto& host : serving) all.reports.push_back(report_of(*host, deadline));
  const auto add = [&](Findings findings) {
    for (Finding& finding : findings) all.between.push_back(std::move(finding));
  };
  add(compare_clocks(serving, all.reports));
  add(closed_ways(serving, all.reports));
  add(folders_apart(serving, all.reports));
  measure_disks(serving, all.reports, request.folder);
  add(disk_findings(all.reports));
  add(compare(all.reports));
  if (request.measures) {
    measure_all(serving, all.reports, request);
    const std::string problem = judge_all(all.reports, best, request.least_percent);
    if (!problem.empty()) add({{.check = "rates", .verdict = Verdict::warn, .text = "none are kept: " + problem}});
  }
  return all;
}

}  // namespace gputrain::doctor
