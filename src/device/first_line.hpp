// What of a library's error is for users.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace gputrain::device {

/// LibTorch's errors go on with advice for programmers and where in its sources they arose.
inline std::string first_line(const std::exception& failure) {
  const std::string_view what = failure.what();
  return std::string(what.substr(0, what.find('\n')));
}

}  // namespace gputrain::device
