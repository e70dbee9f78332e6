// The part of a library's error message that is for users.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace gputrain::device {

/// Returns the first line. LibTorch appends advice for programmers and a source location after it.
inline std::string first_line(const std::exception& failure) {
  const std::string_view what = failure.what();
  return std::string(what.substr(0, what.find('\n')));
}

}  // namespace gputrain::device
