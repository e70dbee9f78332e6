// Keeps warnings back while something is made, so that they can be told wherever it is used.
#pragma once

#include <string>
#include <vector>

namespace gputrain::log {

/// While it lives, warnings of this thread come here and are not written. Not one within another. What nobody takes is
/// written at its end.
class TakenWarnings {
 public:
  TakenWarnings();
  ~TakenWarnings();
  TakenWarnings(const TakenWarnings&) = delete;
  TakenWarnings& operator=(const TakenWarnings&) = delete;

  std::vector<std::string> take();

 private:
  std::vector<std::string> warnings_;
};

}  // namespace gputrain::log
