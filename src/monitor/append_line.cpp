#include "append_line.hpp"

#include <cerrno>
#include <chrono>

#include <fcntl.h>
#include <unistd.h>

#include "gputrain/core/log.hpp"

namespace gputrain::monitor {

double seconds_since_epoch() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) / 1000;
}

bool append_line(const std::filesystem::path& path, const std::string& text, bool sync) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor < 0) return false;
  const off_t end = ::lseek(descriptor, 0, SEEK_END);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(descriptor, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    done += static_cast<size_t>(written);
  }
  const bool is_done = done == text.size() && (!sync || ::fsync(descriptor) == 0);
  if (!is_done && ::ftruncate(descriptor, end) != 0) log::warning(path.string() + ": ends in an incomplete line");
  ::close(descriptor);
  return is_done;
}

}  // namespace gputrain::monitor
