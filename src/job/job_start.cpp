#include "gputrain/job/job_start.hpp"

#include <algorithm>
#include <cctype>

#include "gputrain/job/run_folder.hpp"
#include "job_keys.hpp"

namespace gputrain::app {
namespace {

/// Returns the name of the job file without its extension, with characters that fit a folder name.
std::string name_from(const std::filesystem::path& file) {
  std::string name = file.stem().string();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') c = '-';
  }
  return name.empty() ? "job" : name;
}

}  // namespace

void JobStart::describe(config::Description<JobStart>& d) {
  d.is_a_part();
  describe_keys(d);
  d.check(check_job_start);
}

void check_job_start(const JobStart& spec, config::SpecIssues& issues) {
  launch::check_environment_names(spec.env, issues);
  if (spec.output_dir && spec.output_dir->empty())
    issues.add("output_dir", "is empty", "a folder, or leave it out for runs/<name>");
  if (!spec.name || spec.output_dir) return;  // the name is only a label
  const std::filesystem::path below = *spec.name;
  const bool is_of_home = spec.name->starts_with('~') || spec.name->starts_with("$HOME");
  const bool leads_elsewhere =
      is_of_home || below.is_absolute() ||
      std::any_of(below.begin(), below.end(), [](const auto& part) { return part == "." || part == ".."; });
  if (spec.name->empty() || leads_elsewhere)
    issues.add("name", "does not name a folder below runs/", "a word, or output_dir for a folder elsewhere");
}

config::Request reading_of(const JobRequest& request) {
  config::Request reading{.file = request.file, .set = request.set};
  reading.is_record = reading.file.filename() == RunFolder{}.resolved().filename();
  if (request.output_dir) {
    // Quoted for YAML: a folder may be called "null" or "1".
    std::string quoted = "'";
    for (const char c : *request.output_dir) quoted += c == '\'' ? "''" : std::string(1, c);
    reading.set.push_back("output_dir=" + quoted + "'");
  }
  return reading;
}

std::string name_of(const JobStart& spec, const JobRequest& request) {
  return spec.name.value_or(name_from(request.file));
}

std::filesystem::path output_dir_of(const JobStart& spec, const JobRequest& request) {
  const auto folder = spec.output_dir ? std::filesystem::path(*spec.output_dir)
                                      : std::filesystem::path("runs") / name_of(spec, request);
  const auto plain = folder.lexically_normal();               // otherwise "runs/../x" would create runs
  return plain.has_filename() ? plain : plain.parent_path();  // "runs/x/"
}

std::string same_command(const std::string& resume, bool is_new) {
  if (is_new) return "the same command without --new";
  return resume == "auto" || resume == "must" ? "the same command" : "the same command without checkpoint.resume";
}

}  // namespace gputrain::app
