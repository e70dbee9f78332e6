// Events of a run over all its attempts (ledger.jsonl): one JSON object per line, each chained to the previous line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::monitor {

/// Writer of a run's ledger. Every line has its time, "process_seconds" since the start of its process by a monotonic
/// clock, and "chain", a hash of the previous line's chain and of itself, so that a changed, lost or moved line is
/// detected. This finds accidents and careless edits; it does not stop a forger.
class Ledger {
 public:
  Ledger() = default;  // writes nothing: for ranks other than 0
  /// Continues after the last complete line of the file and drops an incomplete one. Throws Error(environment) if the
  /// file cannot be read to its end.
  explicit Ledger(std::filesystem::path path);

  /// Appends `fields` under "kind" and syncs; returns whether that worked. Warns once about a disk error.
  bool append(const std::string& kind, const nlohmann::json& fields);

 private:
  std::filesystem::path path_;
  std::string chain_;
  bool failed_ = false;
};

/// Lines of a ledger, and problems in their chain.
struct LedgerContent {
  std::vector<nlohmann::json> lines;
  std::vector<std::string> problems;  // "line 7: was changed, or a line before it is missing"
};

/// Reads a ledger; an absent file has no lines. Ignores an incomplete last line: its writer was killed or is still
/// writing. Throws Error(environment) if the file cannot be read to its end.
LedgerContent read_ledger(const std::filesystem::path& path);

}  // namespace gputrain::monitor
