#include "terminal.hpp"

namespace gputrain::launch {

Terminal::~Terminal() {
  const auto latest = Clock::now() + std::chrono::seconds(2);
  for (flush(); (output_.wants() >= 0 || errors_.wants() >= 0) && Clock::now() < latest; flush()) {
    Poll poll;
    add_to(poll);
    poll.wake_at(latest);
    poll.wait();
  }
}

void Terminal::pass_on(int rank, std::string_view text, bool is_error) {
  const std::string line = (rank == 0 ? "" : "[rank " + std::to_string(rank) + "] ") + std::string(text);
  (is_error ? errors_ : output_).write(line);
}

void Terminal::add_to(Poll& poll) const {
  poll.add(output_.wants(), POLLOUT);
  poll.add(errors_.wants(), POLLOUT);
}

void Terminal::flush() {
  output_.flush();
  errors_.flush();
}

}  // namespace gputrain::launch
