// Listing of the files of a folder or a pattern, in an order that does not depend on the machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gputrain::datasets {

/// Returns whether `path` ("src/data/order.cpp") matches `pattern`. `*` and `?` do not match '/', `**` does; `[a-z]`
/// and `[!a-z]` are sets. A pattern without '/' matches files of this name in any folder. A pattern that ends in '/'
/// matches everything in such a folder.
bool matches_glob(std::string_view pattern, std::string_view path);

struct FileFilter {
  std::vector<std::string> include;  // empty: all
  std::vector<std::string> exclude;
};

struct FolderListing {
  std::vector<std::string> files;        // relative paths in byte order
  std::vector<std::string> run_folders;  // folders that were left out, "runs/a/"
};

/// Returns the regular files below `folder`. Skips hidden files and folders (leading dot), and folders of runs: the
/// `own` of this job and those with the resolved job of another. Follows links, but visits each folder once, and warns
/// of links to nowhere and of pipes, sockets and devices. Does not read folders in which the filter wants nothing.
/// Throws Error(usage) if `folder` is one of `own`.
FolderListing list_folder(const std::string& folder, const FileFilter& filter,
                          const std::vector<std::string>& own = {});

/// Returns the files that match a shell pattern, in byte order, each once; `pattern` itself if it names a file. "{a,b}"
/// and "{000..146}" are expanded, and each of their parts must match a file.
std::vector<std::string> expand_pattern(const std::string& pattern);

}  // namespace gputrain::datasets
