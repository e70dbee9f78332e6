// Parses YAML text into nodes with places.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "../problems.hpp"
#include "gputrain/config/node.hpp"

namespace gputrain::config {

inline constexpr size_t kMaxDepth = 64;

/// Limits for one job with all its files, because aliases and ${...} multiply its size.
struct Budget {
  size_t nodes = 100'000;
  size_t bytes = size_t{16} << 20;
};

/// Parses one document; empty text is null. Returns nothing if the text is not YAML or breaks a limit; recoverable
/// mistakes (duplicate keys) are only reported. Parses the text of `source`; all places are in `source`.
std::optional<Node> parse_yaml(const std::shared_ptr<const Source>& source, Budget& budget, Problems& problems);

}  // namespace gputrain::config
