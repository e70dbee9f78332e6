#include "shard_commit.hpp"

#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "gputrain/core/atomic_file.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kBetweenLooks = std::chrono::milliseconds(20);

fs::path note_of(const fs::path& folder, const std::string& name) { return folder / (name + ".written"); }
fs::path failure_of(const fs::path& folder, const std::string& name) { return folder / (name + ".failed"); }

/// Returns the content of a file that is written atomically; nothing if it does not exist yet.
std::optional<std::string> take(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

[[noreturn]] void give_up(const fs::path& folder, const std::string& name, const std::string& why) {
  throw Error(ExitCode::checkpoint, {.what = name + ": " + why, .where = folder.string()});
}

Manifest::File wait_for(const fs::path& folder, const std::string& name, Clock::time_point end) {
  while (true) {
    if (const auto reason = take(failure_of(folder, name)))
      give_up(folder, name, "its rank could not write it: " + *reason);
    if (const auto note = take(note_of(folder, name))) {
      std::error_code ignored;  // a leftover note is harmless
      fs::remove(note_of(folder, name), ignored);
      return parse_file(*note, note_of(folder, name));
    }
    if (Clock::now() > end) {
      give_up(folder, name, "its rank has not written it in time; all ranks need output_dir on one shared disk");
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

void report_shard(const fs::path& folder, const std::string& name, const Manifest::File& file) {
  write_file_atomically(note_of(folder, name), to_json(file), ExitCode::checkpoint);
}

void report_shard_failure(const fs::path& folder, const std::string& name, const std::string& reason) noexcept {
  try {
    write_file_atomically(failure_of(folder, name), reason, ExitCode::checkpoint);
  } catch (const std::exception&) {  // rank 0 then stops waiting at its deadline
  }
}

std::map<std::string, Manifest::File> await_shards(const fs::path& folder, const std::vector<std::string>& names,
                                                   double patience_seconds) {
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience_seconds));
  std::map<std::string, Manifest::File> files;
  for (const std::string& name : names) files[name] = wait_for(folder, name, end);
  return files;
}

}  // namespace gputrain::checkpoint
