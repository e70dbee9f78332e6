// Collects the problems of a job while it is read.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/config/problem.hpp"

namespace gputrain::config {

/// What could not be read and is reported. Mistakes that may only come of it are not reported.
struct Gaps {
  bool keys = false;     // an included file or a --set
  bool entries = false;  // a plug-in
};

class Problems {
 public:
  void add(SourceLocation location, std::string what, std::string hint = {}) {
    if (!is_full()) found_.push_back({std::move(location), std::move(what), std::move(hint)});
  }

  /// Returns whether there are enough problems: more help nobody, and to search the nearest key for 100,000 keys takes
  /// long.
  bool is_full() const noexcept { return found_.size() >= kMost; }
  size_t count() const noexcept { return found_.size(); }
  /// Drops all but the first `count`.
  void keep(size_t count) {
    while (found_.size() > count) found_.pop_back();
  }
  std::vector<Problem> take() { return std::move(found_); }

  static constexpr size_t kMost = 100;

 private:
  std::vector<Problem> found_;
};

}  // namespace gputrain::config
