// YAML text into located nodes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "../problems.hpp"
#include "gputrain/config/node.hpp"

namespace gputrain::config {

inline constexpr size_t kMaxDepth = 64;

/// What one job may expand to, over all its files: aliases and ${...} multiply.
struct Budget {
  size_t nodes = 100'000;
  size_t bytes = size_t{16} << 20;
};

/// Reads one document; empty text is null. Nothing when the text is no YAML or breaks a limit; what can be gone on with
/// (duplicate keys) is only noted. Marks become places in `source`; its text is what is read.
std::optional<Node> parse_yaml(const std::shared_ptr<const Source>& source, Budget& budget, Problems& problems);

}  // namespace gputrain::config
