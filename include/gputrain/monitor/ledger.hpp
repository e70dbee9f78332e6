// ledger.jsonl: the events of a run over all its attempts, one JSON object per line, each chained to the previous line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::monitor {

/// Appends to a run's ledger. Every line has its time, "process_seconds" since the start of its process by a clock that
/// nobody sets, and "chain", a hash of the previous line's chain and of itself,
/// so that a changed, lost or moved line is detected. This finds accidents and careless edits; it does not stop a
/// forger.
class Ledger {
 public:
  Ledger() = default;  // writes nothing: for ranks other than 0
  /// Continues after the last complete line of the file and drops an incomplete one. Throws Error(environment) if the
  /// file cannot be read to its end.
  explicit Ledger(std::filesystem::path path);

  /// Appends `fields` under "kind" and syncs; returns whether that worked. Warns once about a disk error; training
  /// continues.
  bool append(const std::string& kind, const nlohmann::json& fields);

 private:
  std::filesystem::path path_;
  std::string chain_;
  bool failed_ = false;
};

/// The lines of a ledger, and the problems found in their chain.
struct LedgerContent {
  std::vector<nlohmann::json> lines;
  std::vector<std::string> problems;  // "line 7: was changed, or a line before it is missing"
};

/// An absent file has no lines. Ignores an incomplete last line: its writer was killed or is still writing. Throws
/// Error(environment) if the file cannot be read to its end.
LedgerContent read_ledger(const std::filesystem::path& path);

}  // namespace gputrain::monitor
