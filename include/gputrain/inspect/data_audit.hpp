// Audit of the samples that a run has used, from its ledger and the order of its data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gputrain/data/sample_usage.hpp"
#include "gputrain/monitor/ledger.hpp"

namespace gputrain::app {

struct DataAudit {
  struct Finding {
    int64_t attempt, begin, end;  // between these steps
    std::string what;
  };
  std::vector<Finding> findings;
  std::vector<std::string> problems;  // problems of the ledger file
  int64_t attempts = 0, steps = 0, discarded = 0;
  data::SampleUsage used, passed_over;
  int64_t steps_passed_over = 0, rollbacks = 0, steps_skipped = 0;
  double epochs = 0;
  bool drops_some = false;  // data.last: drop, and an epoch is no whole number of steps

  bool is_clean() const { return findings.empty() && problems.empty(); }
};

/// Audits a ledger; `path` is for messages. If its file was changed, reports those problems even if the content makes
/// no sense. Throws Error(data) if an unchanged one makes none.
DataAudit audit_of(const monitor::LedgerContent& ledger, const std::filesystem::path& path);

}  // namespace gputrain::app
