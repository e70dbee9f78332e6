#include "gputrain/core/lines.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

namespace gputrain {
namespace {

// Limits one read(), so that a program that writes without a pause does not block the reader's other work. More than a
// pipe holds, so that one call gets all that an ended process has left.
constexpr size_t kMostAtOnce = size_t{1} << 20;

int without_waiting(int descriptor) {
  if (descriptor >= 0) ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  return descriptor;
}

bool has_room(int descriptor) {
  pollfd room{.fd = descriptor, .events = POLLOUT, .revents = 0};
  return ::poll(&room, 1, 0) > 0;
}

}  // namespace

LineReader::LineReader(int descriptor, size_t longest_line)
    : descriptor_(without_waiting(descriptor)), longest_line_(longest_line) {}

LineReader::LineReader(LineReader&& other) noexcept
    : descriptor_(other.descriptor_.release()),
      longest_line_(other.longest_line_),
      rest_(std::move(other.rest_)),
      searched_(std::exchange(other.searched_, 0)) {}

void LineReader::hand_on(const Each& each) {
  size_t begin = 0;
  for (size_t end; (end = rest_.find('\n', std::max(begin, searched_))) != std::string::npos; begin = end + 1) {
    std::string_view line(rest_.data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    each(line);
  }
  rest_.erase(0, begin);
  searched_ = rest_.size();
  if (rest_.size() < longest_line_) return;
  each(rest_);
  rest_.clear();
  searched_ = 0;
}

void LineReader::read(const Each& each) {
  std::array<char, 65536> buffer{};
  for (size_t taken = 0; !is_at_end() && taken < kMostAtOnce;) {
    const ssize_t count = ::read(descriptor(), buffer.data(), buffer.size());
    if (count > 0) {
      taken += static_cast<size_t>(count);
      rest_.append(buffer.data(), static_cast<size_t>(count));
      hand_on(each);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    ::close(descriptor_.release());
    searched_ = 0;
    if (!rest_.empty()) each(std::exchange(rest_, {}));
  }
}

LineWriter::LineWriter(int descriptor, size_t most_bytes) : most_bytes_(most_bytes), descriptor_(descriptor) {}

bool LineWriter::write(std::string_view line) {
  if (waiting_.size() + line.size() >= most_bytes_) return false;
  insist(line);
  return true;
}

void LineWriter::insist(std::string_view line) {
  if (is_broken()) return;
  waiting_ += line;
  waiting_ += '\n';
  flush();
}

// Other processes may share the descriptor (a terminal), so it stays in blocking mode: poll() first, then write at most
// PIPE_BUF bytes, which does not block.
void LineWriter::flush() {
  while (!waiting_.empty() && !is_broken() && has_room(descriptor_.get())) {
    const ssize_t count = ::write(descriptor_.get(), waiting_.data(), std::min<size_t>(waiting_.size(), PIPE_BUF));
    if (count >= 0) {
      waiting_.erase(0, static_cast<size_t>(count));
    } else if (errno == ENOSPC || errno == EDQUOT) {
      waiting_.clear();  // lost; later lines may find space
    } else if (errno != EINTR && errno != EAGAIN) {
      close();
    }
  }
}

void LineWriter::close() {
  waiting_.clear();
  if (!is_broken()) ::close(descriptor_.release());
}

}  // namespace gputrain
