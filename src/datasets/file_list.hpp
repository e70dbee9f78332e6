// Which files a folder or a pattern stands for, in an order that does not depend on the machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gputrain::datasets {

/// True when `path` ("src/data/order.cpp") matches `pattern`. `*` and `?` stop at a '/', `**` does not, `[a-z]` and
/// `[!a-z]` are sets. A pattern without '/' matches a file of that name in any folder; one that ends in '/' all that is
/// in such a folder.
bool matches_glob(std::string_view pattern, std::string_view path);

struct FileFilter {
  std::vector<std::string> include;  // empty: all
  std::vector<std::string> exclude;
};

/// The regular files below `folder`, as paths relative to it, in order of their bytes. Hidden files and folders (with a
/// leading dot) are left out. Links are followed; a folder that is reached a second time, in order of paths, is left
/// out. Folders in which nothing is wanted are not read.
std::vector<std::string> list_files(const std::string& folder, const FileFilter& filter);

/// The files that a shell pattern stands for, in order of their bytes, each once; `pattern` itself when it names a
/// file.
/// "{a,b}" and "{000..146}" stand for each of these, all of which must be there.
std::vector<std::string> expand_pattern(const std::string& pattern);

}  // namespace gputrain::datasets
