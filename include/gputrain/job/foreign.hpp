// Jobs of other tools: axolotl, LLaMA-Factory, TRL, timm and the Trainer of transformers.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/node.hpp"
#include "gputrain/config/schema.hpp"

namespace gputrain::app {

/// A job of another tool as one of gputrain.
struct MovedJob {
  /// A key of the other tool whose meaning stands in no line of the job.
  struct Told {
    std::string theirs;  // "dataset_prepared_path: last_run_prepared", on one line
    std::string why;     // the reason, and what serves instead
  };
  std::string tool;                // "axolotl"
  std::string yaml;                // the job; without lines about `told`
  std::vector<std::string> moved;  // their keys that are lines of the job
  std::vector<Told> told;
  std::vector<std::string> guessed;     // "model.type: gpt": lines whose value no key of theirs says
  std::vector<std::string> unchanging;  // keys without which the job would be the same
  std::vector<std::string> unknown;     // keys that the tool does not have, as far as this program knows
};

/// Names that move_job() takes: "axolotl", "llamafactory", "timm", "transformers", "trl-dpo", ...
std::vector<std::string> foreign_tools();

/// Reads a file of another tool: YAML, JSON, or a shell script with its command line. `tool`: one of foreign_tools();
/// empty: it is told by the keys. Throws Error(usage) if the file is of none of them or trains what gputrain does not,
/// SpecError if it is no YAML.
MovedJob move_job(const std::string& file, const std::string& tool);

/// Throws Error(usage) if a file that should be a job is one of another tool.
void refuse_foreign_job(const std::filesystem::path& file);

/// Returns what to write in a job instead of a key of another tool; nothing if none has it.
std::optional<config::Schema::Instead> instead_of_foreign(const std::string& dotted, const config::Node& value);

/// Returns what a key of other tools is here, a paragraph of at most `width` columns for each tool; empty: none has it.
std::string describe_foreign(const std::string& name, size_t width);

}  // namespace gputrain::app
