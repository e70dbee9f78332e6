#include "gputrain/monitor/archive_lines.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <optional>
#include <string_view>

#include "append_line.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::monitor {
namespace {

/// Reads the number at the start of "12,345/20,000 61.7% ..." or "12,345 val/loss ...".
std::optional<int64_t> leading_count(std::string_view text) {
  constexpr int64_t kLargest = INT64_MAX / 10 - 1;
  int64_t value = -1;
  for (const char c : text) {
    if (c == ',' && value >= 0) continue;
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) break;
    if (value > kLargest) return std::nullopt;
    value = std::max<int64_t>(value, 0) * 10 + (c - '0');
  }
  return value < 0 ? std::nullopt : std::optional(value);
}

/// Returns the text of a log line after time and level; empty for continuation lines of a block.
std::string_view message_of(std::string_view line) {
  constexpr std::string_view kTime = "2026-11-20T22:33:44.555 ";
  constexpr size_t kDateMark = 10;
  if (line.size() < kTime.size() || line[kDateMark] != 'T' || line[kTime.size() - 1] != ' ') return {};
  line.remove_prefix(kTime.size());
  const size_t level = line.find(' ');
  return level == std::string_view::npos ? std::string_view() : line.substr(level + 1);
}

}  // namespace

int64_t archive_lines(const std::filesystem::path& path, const std::function<bool(const std::string& line)>& stays) {
  std::ifstream file(path, std::ios::binary);
  std::string kept, aside, line;
  int64_t count = 0;
  bool is_torn = false;
  while (std::getline(file, line)) {
    is_torn = file.eof();  // no newline at its end
    const bool is_kept = stays(line);
    count += is_kept ? 0 : 1;
    (is_kept ? kept : aside) += line + "\n";
  }
  if (file.bad()) {  // a read error is not the end of the file
    throw Error(ExitCode::environment,
                {.what = "cannot be read to its end", .where = path.string(), .hint = "check its disk"});
  }
  file.close();
  const std::filesystem::path left = path.string() + ".left";
  if (count > 0 && !append_line(left, aside, /*sync=*/true)) {
    throw Error(ExitCode::environment, {.what = "cannot set aside the lines about steps that are repeated",
                                        .where = left.string(),
                                        .hint = "free space there, or choose another output_dir"});
  }
  if (count > 0 || is_torn) write_file_atomically(path, kept, ExitCode::environment);
  return count;
}

int64_t truncate_log(const std::filesystem::path& path, int64_t resume_step, int64_t evaluated_step) {
  return archive_lines(path, [&](const std::string& line) {
    constexpr std::string_view kStep = "step    ", kEval = "eval    ";
    const std::string_view message = message_of(line);
    const bool is_eval = message.starts_with(kEval);
    if (!is_eval && !message.starts_with(kStep)) return true;
    const std::optional<int64_t> step = leading_count(message.substr(kStep.size()));
    return !step || *step <= (is_eval ? std::min(resume_step, evaluated_step) : resume_step);
  });
}

}  // namespace gputrain::monitor
