// Runs PyTorch, transformers or safetensors in Python as a test's independent reference.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gputrain::testing {

/// Runs a command and hides its output; true if it exits with 0.
inline bool succeeds(const std::vector<std::string>& words) {
  std::string command;
  for (const std::string& word : words) command += "'" + word + "' ";
  return std::system((command + "1>&2").c_str()) == 0;
}

inline std::string reference_python() { return GPUTRAIN_SOURCE_DIR "/.deps/bin/python"; }

/// Runs a script of the source tree with the reference packages.
inline bool run_reference(const std::string& script, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {reference_python(), std::string(GPUTRAIN_SOURCE_DIR "/tests/") + script});
  return succeeds(arguments);
}

inline bool has_reference(const std::string& module) {
  return std::filesystem::exists(reference_python()) &&
         succeeds({reference_python(), "-c",
                   "import importlib.util as u, sys; sys.exit(not u.find_spec(\"" + module + "\"))"});
}

}  // namespace gputrain::testing

/// Skips the test with a reason if the Python module is not installed; with CI set, fails instead.
#define GPUTRAIN_NEED_REFERENCE(module)                                                                     \
  do {                                                                                                      \
    if (!::gputrain::testing::has_reference(module)) {                                                      \
      const std::string reason =                                                                            \
          std::string("the Python module ") + module + " is not installed (scripts/requirements-test.txt)"; \
      if (std::getenv("CI") != nullptr) FAIL() << reason;                                                   \
      GTEST_SKIP() << reason;                                                                               \
    }                                                                                                       \
  } while (false)
