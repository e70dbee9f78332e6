#include "atomic_folder.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "gputrain/checkpoint/listing.hpp"
#include "gputrain/core/atomic_file.hpp"

namespace gputrain::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSuffix = ".partial";

}  // namespace

void create_folder(const fs::path& folder) {
  on_disk(folder, "cannot create the folder", [&] {
    if (fs::create_directories(folder) && folder.has_parent_path())
      sync_folder(folder.parent_path(), ExitCode::checkpoint);
  });
}

fs::path partial_name_of(const fs::path& checkpoint) { return checkpoint.string() + kSuffix; }

std::string remove_partial_folders(const fs::path& folder) {
  return on_disk(folder, "cannot list partial checkpoints of an earlier attempt", [&] {
    std::string trouble;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("step-") || !name.ends_with(kSuffix)) continue;
      std::error_code failure;
      fs::remove_all(entry.path(), failure);
      if (failure && trouble.empty())
        trouble = entry.path().string() + ": cannot remove what an earlier attempt left: " + failure.message();
    }
    return trouble;
  });
}

void check_room(const fs::path& folder, uint64_t needed, const std::string& hint) {
  std::error_code unknown;
  const fs::space_info space = fs::space(folder, unknown);
  if (unknown || space.available >= needed) return;
  const auto text = [](uint64_t bytes) {
    const auto count = static_cast<double>(bytes);
    return count < 0x1p26 ? fmt::format("{:.0f} KiB", count / 0x1p10) : fmt::format("{:.0f} MiB", count / 0x1p20);
  };
  throw Error(ExitCode::checkpoint, {.what = "no room for a checkpoint: it needs " + text(needed) + ", " +
                                             text(space.available) + " are free",
                                     .where = folder.string(),
                                     .hint = hint});
}

fs::path commit_folder(const fs::path& written, const fs::path& folder, int64_t step) {
  return on_disk(folder, "cannot rename into place", [&] {
    int64_t number = 1;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const auto name = parse_step_name(entry.path().filename().string());
      if (name && name->suffix.empty() && name->step == step) number = std::max(number, name->number + 1);
    }
    fs::path target = folder / folder_name(step, number);
    fs::rename(written, target);
    sync_folder(folder, ExitCode::checkpoint);
    return target;
  });
}

}  // namespace gputrain::checkpoint
