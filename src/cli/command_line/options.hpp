// Options that several subcommands have.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "../commands.hpp"

namespace gputrain {

/// Refuses an empty text, which probably comes from an unset variable in a script.
inline std::string not_empty(const std::string& text) { return text.empty() ? "is empty" : ""; }

inline void add_set(CLI::App& verb, std::vector<std::string>& set) {
  verb.add_option("--set", set, "set one key: --set train.max_steps=100 (repeatable, wins over the file)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

inline void add_job(CLI::App& verb, app::JobRequest& job) {
  verb.add_option("job", job.file, "the job file (YAML)")->required()->check(not_empty);
  add_set(verb, job.set);
}

inline void add_plugins(CLI::App& verb, std::vector<std::string>& plugins) {
  verb.add_option("--plugin", plugins, "a plug-in whose entries are shown too (repeatable)")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->check(not_empty);
}

inline void add_output_dir(CLI::App& verb, app::JobRequest& job) {
  verb.add_option("--output-dir", job.output_dir, "the run folder, as --set output_dir=DIR");
}

inline auto at_least(int64_t least) {
  return [least](const std::string& text) {
    return std::atoll(text.c_str()) >= least ? "" : "must be a whole number of at least " + std::to_string(least);
  };
}

}  // namespace gputrain
