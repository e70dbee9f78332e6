// Count of the files that a format does not read, for one warning.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gputrain::datasets {

struct LeftOut {
  int64_t count = 0;
  std::string first;

  void add(std::string_view name);
  /// Warns "WHERE: left out 4 links to nowhere, such as a/4.png", if there are any. `noun` is "link", `which` "to
  /// nowhere".
  void warn(const std::string& where, std::string_view noun, const std::string& which) const;
};

}  // namespace gputrain::datasets
