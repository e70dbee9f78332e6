// Files, read with suspicion: what is too large, no regular file or no UTF-8 is refused before anything looks inside.
#pragma once

#include <filesystem>
#include <memory>

#include "../problems.hpp"
#include "gputrain/config/node.hpp"

namespace gputrain::config {

inline constexpr size_t kMaxFileBytes = size_t{4} << 20;
inline constexpr size_t kMaxLineBytes = size_t{64} << 10;

/// Reads a file; null after noting in `problems` why it cannot be. `asked_by` is the include that names it, if any.
std::shared_ptr<const Source> read_source(const std::filesystem::path& path, const Place& asked_by, Problems& problems);

/// Notes text that is not UTF-8, holds control characters, or has a monstrous line; true when there is none.
bool is_clean(const std::shared_ptr<const Source>& source, Problems& problems);

/// The place of byte `offset`.
Place place_at(const std::shared_ptr<const Source>& source, size_t offset);

}  // namespace gputrain::config
