// ledger.jsonl: what happened to a run over all its attempts, one JSON object per line, each chained to the one before.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::monitor {

/// Appends to a run's ledger. Every line carries its time and "chain": a hash of the line before and of itself, so that
/// a line changed, lost or moved shows. It shows accidents and careless edits; it does not stop a forger.
class Ledger {
 public:
  Ledger() = default;  // writes nothing: ranks other than 0
  /// Goes on after the last whole line of the file, if there is one; half a line at its end is dropped. Throws
  /// Error(environment) where the file cannot be read to its end.
  explicit Ledger(std::filesystem::path path);

  /// Appends `fields` under "kind" and syncs; whether it could. A disk that refuses is reported once; training goes on.
  bool append(const std::string& kind, const nlohmann::json& fields);

 private:
  std::filesystem::path path_;
  std::string chain_;
  bool failed_ = false;
};

/// A ledger as it is read: its lines, and what is wrong with their chain.
struct LedgerContent {
  std::vector<nlohmann::json> lines;
  std::vector<std::string> problems;  // "line 7: not the line that was written"
};

/// An absent file has no lines. Half a line at the end is of a process that was killed, or is writing now: it is no
/// line. Throws Error(environment) where it cannot be read to its end.
LedgerContent read_ledger(const std::filesystem::path& path);

}  // namespace gputrain::monitor
