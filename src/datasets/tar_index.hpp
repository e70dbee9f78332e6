// What a tar archive holds and where: ustar, pax and GNU's long names, read from the headers alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "gputrain/data/read_only_file.hpp"

namespace gputrain::datasets {

struct TarEntry {
  std::string name;  // as stored, without a leading "./"
  int64_t offset = 0, size = 0;
  bool is_link = false;  // hard or symbolic: no content of its own
};

/// Calls `visit` for every file and link, in the order of the archive. Nothing is unpacked, no name is
/// ever used as a path. Throws Error(data) for a damaged or cut off archive for sizes that it cannot hold, and for
/// sparse files.
void visit_tar(const data::ReadOnlyFile& file, const std::function<void(TarEntry&&)>& visit);

}  // namespace gputrain::datasets
