#include "places.hpp"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include "gputrain/core/atomic_file.hpp"

namespace gputrain::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSuffix = ".partial";
constexpr const char* kReplacedSuffix = ".old.partial";

void rename_into_place(const fs::path& written, const fs::path& target) {
  const bool replaces = fs::exists(fs::symlink_status(target));  // also a dangling link
  const unsigned int flags = replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  if (::renameat2(AT_FDCWD, written.c_str(), AT_FDCWD, target.c_str(), flags) == 0) {
    std::error_code ignored;  // on failure the replaced one keeps its partial name and cannot be restored
    if (replaces) fs::rename(written, replaced_name_of(target), ignored);
    return;
  }
  const bool is_unsupported = errno == EINVAL || errno == ENOSYS;
  if (!is_unsupported) {
    throw Error(ExitCode::checkpoint,
                {.what = std::string("cannot rename into place: ") + std::strerror(errno), .where = target.string()});
  }
  on_disk(target, "cannot rename into place", [&] {  // file systems without atomic exchange, such as NFS
    fs::path old = replaced_name_of(target);
    if (fs::exists(old)) old = partial_name_of(target.string() + ".unread");
    if (replaces) fs::rename(target, old);
    std::error_code failure;
    fs::rename(written, target, failure);
    if (failure) {
      if (replaces) fs::rename(old, target);
      throw fs::filesystem_error("rename", written, target, failure);
    }
  });
}

std::vector<fs::path> checkpoints_with(std::string_view suffix, const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(suffix)) found.push_back(entry.path());
  }
  return found;
}

}  // namespace

fs::path partial_name_of(const fs::path& checkpoint) { return checkpoint.string() + kSuffix; }

fs::path replaced_name_of(const fs::path& checkpoint) { return checkpoint.string() + kReplacedSuffix; }

void put_back_replaced(const fs::path& folder) {
  on_disk(folder, "cannot restore a replaced checkpoint", [&] {
    if (!fs::exists(folder)) return;
    for (const fs::path& path : checkpoints_with(kReplacedSuffix, folder)) {
      const std::string name = path.string();
      const fs::path target = name.substr(0, name.size() - std::string_view(kReplacedSuffix).size());
      if (!fs::exists(target)) fs::rename(path, target);
    }
  });
}

std::string remove_partial_folders(const fs::path& folder) {
  return on_disk(folder, "cannot list partial checkpoints of an earlier attempt", [&] {
    std::string trouble;
    for (const fs::path& path : checkpoints_with(kSuffix, folder)) {
      if (path.string().ends_with(kReplacedSuffix)) continue;
      std::error_code failure;
      fs::remove_all(path, failure);
      if (failure && trouble.empty())
        trouble = path.string() + ": cannot remove a partial checkpoint of an earlier attempt: " + failure.message();
    }
    return trouble;
  });
}

void remove_replaced_folders(const fs::path& folder) {
  std::error_code ignored;
  try {
    for (const fs::path& path : checkpoints_with(kReplacedSuffix, folder)) fs::remove_all(path, ignored);
  } catch (const fs::filesystem_error&) {
    // The folder cannot be listed now; the next save tries again.
  }
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

void put_in_place(const fs::path& written, const fs::path& target) {
  rename_into_place(written, target);
  sync_folder(target.parent_path(), ExitCode::checkpoint);
}

}  // namespace gputrain::checkpoint
