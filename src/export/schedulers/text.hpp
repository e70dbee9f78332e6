// Fills the templates of files for schedulers, and quotes what comes from users.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/export/scheduler_files.hpp"

namespace gputrain::app {

using TextValues = std::map<std::string, std::string>;

/// Puts values in the places of their names, @NAME@. A line with nothing but a name takes a value of several lines,
/// each with the indentation of that line; an empty value removes the line.
std::string filled(std::string_view text, const TextValues& values);

/// Returns a scalar of YAML in double quotes.
std::string yaml_text(const std::string& text);
/// Returns a list of YAML on one line.
std::string yaml_list(const std::vector<std::string>& words);

/// Doubles each '$' for readers that take $$ for it, and else look for the names of variables behind it.
std::string with_double_dollars(const std::string& text);

/// Returns words of a POSIX shell, in single quotes where needed.
std::string shell_words(const std::vector<std::string>& words);

/// Returns a comment of one line.
std::string comment(const std::string& text);

/// Returns the command of a node, for the job's file at this path.
std::vector<std::string> launch_command(const JobFacts& facts, const std::string& file);
/// Returns lines of a shell that start the command, and again after exit code 138.
std::string repeated(const std::string& command);

/// Returns the path in a container, where the first volume is the working folder.
std::string path_in_container(const JobFacts& facts, const std::string& path);
bool is_in_volume(const JobFacts& facts, const std::string& path);

/// Returns comments: what must be in the image because no volume has it, and where the page of the run is.
std::string container_notes(const JobFacts& facts);
/// Returns a comment about the page of the run; empty without one.
std::string page_note(const JobFacts& facts);

constexpr const char* kJobInContainer = "/job/job.yaml";

}  // namespace gputrain::app
