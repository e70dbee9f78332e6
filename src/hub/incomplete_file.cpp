#include "incomplete_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::hub {

IncompleteFile::IncompleteFile(std::filesystem::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) {
  if (file_.get() < 0) fail("cannot create the file");
  read_own();
}

void IncompleteFile::read_own() {
  std::vector<char> buffer(1 << 20);
  for (;;) {
    const ssize_t got = ::read(file_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read the file");
    if (got == 0) break;
    digest_.add({buffer.data(), static_cast<size_t>(got)});
    size_ += static_cast<uint64_t>(got);
  }
  is_continued_ = size_ > 0;
}

void IncompleteFile::append(std::string_view bytes) {
  digest_.add(bytes);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write");
    size_ += static_cast<uint64_t>(written);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void IncompleteFile::restart() {
  if (::ftruncate(file_.get(), 0) != 0 || ::lseek(file_.get(), 0, SEEK_SET) != 0) fail("cannot empty the file");
  digest_.finish();
  size_ = 0;
  is_continued_ = false;
}

void IncompleteFile::move_to(const std::filesystem::path& path) {
  if (::fsync(file_.get()) != 0) fail("cannot write");
  std::error_code error;
  std::filesystem::rename(path_, path, error);
  if (error) {
    errno = error.value();
    fail("cannot rename the file");
  }
  sync_folder(path.parent_path(), ExitCode::environment);
}

void IncompleteFile::fail(const std::string& action) const {
  const int error = errno;
  throw Error(ExitCode::environment,
              {.what = action + ": " + std::system_category().message(error),
               .where = path_.string(),
               .hint = error == ENOSPC || error == EDQUOT
                           ? "make room, or let HF_HUB_CACHE name a folder on another disk; what has arrived is kept"
                           : ""});
}

}  // namespace gputrain::hub
