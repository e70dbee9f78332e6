// `gputrain data audit`: checks from the ledger which samples a run has used.
#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/data_audit.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/resume/record.hpp"

namespace gputrain::app {
namespace {

void print(const DataAudit& audit) {
  std::printf("attempts %s  %s that count, at least %s thrown away  %s  %.2f epochs\n", grouped(audit.attempts).c_str(),
              counted(audit.steps - audit.steps_passed_over, "step").c_str(),
              grouped(std::max<int64_t>(0, audit.discarded)).c_str(), counted(audit.used.samples, "sample").c_str(),
              audit.epochs);
  for (const std::string& problem : audit.problems) std::printf("ledger  %s\n", problem.c_str());
  for (const auto& finding : audit.findings) {
    const std::string steps = finding.begin == finding.end
                                  ? "step " + grouped(finding.end)
                                  : "steps " + grouped(finding.begin) + " to " + grouped(finding.end);
    std::printf("attempt %lld, %s: %s\n", static_cast<long long>(finding.attempt), steps.c_str(), finding.what.c_str());
  }
  if (audit.rollbacks > 0) {
    std::printf("passed over  %s of %s, by %s\n", counted(audit.passed_over.samples, "sample").c_str(),
                counted(audit.steps_passed_over, "step").c_str(), counted(audit.rollbacks, "rollback").c_str());
  }
  if (audit.steps_skipped > 0) {
    std::printf("without effect  %s whose update was skipped\n", counted(audit.steps_skipped, "step").c_str());
  }
  if (audit.used.unreadable > 0) {
    std::printf("unreadable  %s of these samples skipped (data.max_bad_fraction)\n",
                grouped(audit.used.unreadable).c_str());
  }
  std::string verdict =
      audit.drops_some ? "used once per epoch or dropped at its end (data.last: drop)" : "used exactly once per epoch";
  if (audit.used.unreadable > 0) verdict += " or skipped as unreadable";
  if (audit.rollbacks > 0) verdict += " or passed over on purpose";
  std::printf("%s\n", audit.is_clean() ? ("ok: every sample was " + verdict + " so far").c_str() : "NOT ok");
}

nlohmann::json json_of(const DataAudit& audit) {
  auto findings = nlohmann::json::array();
  for (const auto& finding : audit.findings) {
    findings.push_back(
        {{"attempt", finding.attempt}, {"begin", finding.begin}, {"end", finding.end}, {"what", finding.what}});
  }
  return {{"ok", audit.is_clean()},
          {"attempts", audit.attempts},
          {"steps", audit.steps},
          {"data", to_json(audit.used)},
          {"epochs", audit.epochs},
          {"passed_over",
           {{"rollbacks", audit.rollbacks}, {"steps", audit.steps_passed_over}, {"data", to_json(audit.passed_over)}}},
          {"steps_skipped", audit.steps_skipped},
          {"findings", std::move(findings)},
          {"problems", audit.problems}};
}

}  // namespace

int audit_command(const std::string& run, bool json) {
  const auto path = RunFolder{run}.ledger();
  const monitor::LedgerContent ledger = monitor::read_ledger(path);
  if (ledger.lines.empty() && ledger.problems.empty()) {
    throw Error(ExitCode::usage, {.what = "there is no ledger", .where = path.string(), .hint = "name a run folder"});
  }
  const DataAudit audit = audit_of(ledger, path);
  if (json) {
    std::printf("%s\n", json_of(audit).dump(2).c_str());
  } else {
    print(audit);
  }
  return static_cast<int>(audit.is_clean() ? ExitCode::done : ExitCode::refused);
}

}  // namespace gputrain::app
