// Entries of a tar archive from their headers: ustar, pax and GNU long names.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "gputrain/data/read_only_file.hpp"

namespace gputrain::datasets {

struct TarEntry {
  std::string name;  // name as stored, without a leading "./"
  int64_t offset = 0, size = 0;
  bool is_link = false;    // true if hard or symbolic: no content of its own
  bool is_folder = false;  // true if its name ends with a slash
};

/// Calls `visit` for every file, link and folder, in archive order. Unpacks nothing, and never uses a name as a path.
/// Throws Error(data) for an archive that is damaged or cut off, has impossible sizes or holds sparse files.
void visit_tar(const data::ReadOnlyFile& file, const std::function<void(TarEntry&&)>& visit);

}  // namespace gputrain::datasets
