#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "gputrain/config/load.hpp"
#include "gputrain/config/names.hpp"
#include "gputrain/config/reference.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/export/scheduler_files.hpp"
#include "gputrain/job/foreign.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/job/plugins.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/setup/compatibility.hpp"
#include "gputrain/setup/versions.hpp"
#include "gputrain/sweep/trials.hpp"

namespace gputrain::app {
namespace {

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

/// Returns the catalogs of which a job picks, and that of what `gputrain export` writes for schedulers.
std::vector<const config::AnyCatalog*> all_catalogs() {
  std::vector<const config::AnyCatalog*> catalogs = config::catalogs_of(job_schema());
  catalogs.push_back(&schedulers());
  return catalogs;
}

size_t width() { return monitor::terminal_width(); }

const config::AnyCatalog& catalog_of_kind(const std::string& kind) {
  const auto catalogs = all_catalogs();
  std::string known;
  for (const auto* catalog : catalogs) {
    if (catalog->kind() == kind || catalog->kind() + "s" == kind) return *catalog;
    known += (known.empty() ? "" : ", ") + catalog->kind();
  }
  throw Error(ExitCode::usage, {.what = "there is no kind '" + kind + "'", .hint = "one of: " + known});
}

/// Describes everything with this name, of any kind: `describe gpt`, `describe optimizer.lr`; else options of entries,
/// `describe lr_scheduler.warmup`, keys that end so, and those that other programs call so: `describe learning_rate`.
std::string describe_anything(const std::string& name) {
  std::string text = config::describe_text(job_schema(), width(), name);
  if (!text.empty()) return text;
  std::string kinds;
  std::vector<std::string> known = config::key_names(job_schema());
  for (const auto* catalog : all_catalogs()) {
    if (catalog->kind() == name || catalog->kind() + "s" == name) return config::list_text(*catalog, width());
    const auto names = catalog->names();
    known.insert(known.end(), names.begin(), names.end());
    if (std::find(names.begin(), names.end(), name) != names.end())
      text += config::describe_text(*catalog, name, width());
    kinds += ", " + catalog->kind();
  }
  if (text.empty()) text = config::describe_name(job_schema(), name, width());
  if (text.empty()) text = describe_foreign(name, width());
  if (!text.empty()) return text;
  const std::string near = config::did_you_mean(name, known);
  throw Error(ExitCode::usage,
              {.what = "there is neither a key of the job nor an entry '" + name + "'",
               .hint = (near.empty() ? "" : near + " ") +
                       "`gputrain list` shows entries, `gputrain describe job` all keys; or a kind: job" + kinds});
}

constexpr const char* kKeysHead =
    R"(# Every key of a job

`gputrain describe --markdown > configs/keys.md` writes this page; a test compares it with the program.
How to write a job: [README.md](README.md).

| word of a type | what it takes |
|-|-|
| length | `500` (steps), `5ep` (epochs), `10%` (of the training), `2Btok` (tokens), `30m` (time); not every key takes every unit |
| duration | `90s`, `30m`, `1h30m`, `2d` |
| group | keys of its own, below it in the table; `[]` stands for each element of a list |
| a value \| list | one value, or several |
| options | the keys of the entry that was picked: see its table below |

The column *resume* says whether the key may have another value when a run goes on from a checkpoint: `yes`; only with
`gputrain run --accept`, because results may change; or `no`.

)";

nlohmann::ordered_json as_json(const config::SpecError& error) {
  auto problems = nlohmann::ordered_json::array();
  for (const auto& problem : error.problems()) {
    problems.push_back({{"place", problem.location.to_string()}, {"what", problem.what}, {"hint", problem.hint}});
  }
  return {{"valid", false}, {"problems", problems}};
}

Job valid_job(const JobRequest& request) {
  Job job = load_job(request);
  job.loaded.require_secrets();
  check_compatibility(job);
  if (job.spec().sweep) check_values(request, job);
  return job;
}

}  // namespace

int validate_command(const JobRequest& request, bool json) {
  if (!json) {
    const Job job = valid_job(request);
    print(request.file + ": valid, run id " + job.run_id + "\n");
    return 0;
  }
  try {
    const Job job = valid_job(request);
    print(nlohmann::ordered_json{{"valid", true}, {"run_id", job.run_id}}.dump(2) + "\n");
    return 0;
  } catch (const config::SpecError& error) {
    print(as_json(error).dump(2) + "\n");
    return static_cast<int>(error.code());
  }
}

int config_command(const JobRequest& request, bool origin) {
  print(load_job(request).loaded.resolved_yaml(origin));
  return 0;
}

int schema_command(const std::vector<std::string>& plugins) {
  for (const std::string& file : plugins) load_plugin(file);
  print(config::json_schema(job_schema(), "gputrain job").dump(2) + "\n");
  return 0;
}

int list_command(const std::string& kind, const std::vector<std::string>& plugins) {
  for (const std::string& file : plugins) load_plugin(file);
  if (!kind.empty()) {
    print(config::list_text(catalog_of_kind(kind), width()));
    return 0;
  }
  bool first = true;
  for (const auto* catalog : all_catalogs()) {
    print((first ? "" : "\n") + catalog->kind() + "s\n" + config::list_text(*catalog, width()));
    first = false;
  }
  return 0;
}

int describe_command(const std::string& kind, const std::string& name, const std::string& page,
                     const std::vector<std::string>& plugins) {
  for (const std::string& file : plugins) load_plugin(file);
  if (page == "compatibility") {
    print(compatibility_page());
    return 0;
  }
  if (page == "keys") {
    print(kKeysHead + config::keys_page(job_schema()));
    return 0;
  }
  if (kind.empty())
    throw Error(ExitCode::usage, {.what = "describe what?", .hint = "`gputrain describe job`, or --help"});
  if (kind == "job" && name.empty())
    print(config::describe_text(job_schema(), width()));
  else if (name.empty() || kind == "job")
    print(describe_anything(kind == "job" ? name : kind));
  else
    print(config::describe_text(catalog_of_kind(kind), name, width()));
  return 0;
}

std::vector<std::string> names_command(const std::string& kind) {
  if (kind == "keys") return config::key_names(job_schema());
  std::vector<std::string> names;
  for (const auto* catalog : all_catalogs()) {
    names.push_back(catalog->kind());
    if (kind == "kinds") continue;
    const auto entries = catalog->names();
    names.insert(names.end(), entries.begin(), entries.end());
  }
  return names;
}

int version_command() {
  print(versions_text());
  return 0;
}

}  // namespace gputrain::app
