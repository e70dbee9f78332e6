// Version numbers of drivers and of CUDA.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace gputrain::doctor {

/// Returns "13.0" for 13000; empty for 0.
inline std::string cuda_text(int number) {
  return number == 0 ? "" : std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

/// Returns {580, 65, 6} for "580.65.06". A part that is no number ends it.
inline std::vector<int> version_parts(const std::string& text) {
  std::vector<int> parts;
  std::istringstream stream(text);
  for (int part = 0; stream >> part; stream.get()) parts.push_back(part);
  return parts;
}

}  // namespace gputrain::doctor
