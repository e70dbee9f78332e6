// Plug-ins: shared libraries that register entries of their own (models, datasets, optimizers, ...), built outside of
// gputrain's tree with its CMake package.
#pragma once

#include <string>
#include <vector>

#include "gputrain/config/load.hpp"

namespace gputrain::app {

struct Plugin {
  std::string path;                  // absolute
  std::string name;                  // "libtiny_mixer.so"
  std::string build;                 // hash of the file, twelve hex digits
  std::vector<std::string> entries;  // "model 'tiny_mixer'"
};

/// Loads a plug-in for the rest of the process, at most once. Call it before job_schema(), which contains its entries.
/// Throws Error(usage) if the file is no plug-in, was built for another gputrain (before any of its code runs), does
/// not load, or registers a name that is taken.
void load_plugin(const std::string& file);

/// Reads the key `plugins` of a job that may have mistakes.
std::vector<std::string> plugins_of(const config::Request& job);

/// Loads the plug-ins of a job's key `plugins`, whatever its other mistakes, and returns those of the plug-ins.
std::vector<config::Problem> load_plugins_of(const config::Request& job);

/// Lists the plug-ins of this process, in the order in which they were loaded.
const std::vector<Plugin>& plugins();

/// Returns "libtiny_mixer.so 3f2a11c0ffee", with the entries of each if asked; empty: there are none.
std::string plugins_text(bool with_entries);

}  // namespace gputrain::app
