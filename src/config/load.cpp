#include "gputrain/config/load.hpp"

#include <cstdlib>
#include <utility>

#include "check.hpp"
#include "interpolate.hpp"
#include "layers.hpp"
#include "yaml/write.hpp"

namespace gputrain::config {
namespace {

std::string subject_of(const Request& request) {
  return request.file.empty() ? (request.text ? "the job" : "--set") : request.file.string();
}

SourceLocation file_location(const Request& request) {
  auto source = std::make_shared<Source>();
  source->name = subject_of(request);
  return {source, 0, 0};
}

std::optional<std::string> of_this_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

/// Empty: there is nothing to read.
std::optional<Loaded> read(const Schema& schema, const Request& given, Problems& problems) {
  Request request = given;
  if (!request.environment) request.environment = of_this_process;
  Budget budget;
  std::optional<Node> job = read_layers(request, budget, problems);
  if (!job) return std::nullopt;
  job->location = file_location(request);  // the whole job: the place for missing keys
  interpolate(*job, schema, request, budget, problems);
  Checker checker(schema, *job, request.environment, problems);
  std::shared_ptr<const void> spec = checker.run();
  return Loaded(schema, std::move(spec), checker.take_origins());
}

}  // namespace

Loaded load(const Schema& schema, const Request& request) {
  Problems problems;
  std::optional<Loaded> job = read(schema, request, problems);
  if (problems.count() > 0) throw SpecError(subject_of(request), problems.take());
  return *std::move(job);
}

Loaded load_despite_mistakes(const Schema& schema, const Request& request) {
  Problems ignored;
  std::optional<Loaded> job = read(schema, request, ignored);
  return job ? *std::move(job) : Loaded(schema, schema.create(), {});
}

Loaded::Loaded(const Schema& schema, std::shared_ptr<const void> spec, std::map<std::string, SourceLocation> origins)
    : schema_(&schema), spec_(std::move(spec)), origins_(std::move(origins)) {}

std::string Loaded::resolved_yaml(bool origins) const {
  Node root = node_of(*schema_, spec_.get());
  escape_interpolation(root);
  if (!origins) return to_yaml(root);
  return to_yaml(root, [this](const std::string& dotted) { return origin(dotted); });
}

std::vector<Setting> Loaded::settings() const { return settings_of(*schema_, spec_.get()); }

std::string Loaded::origin(const std::string& dotted) const {
  const auto found = origins_.find(dotted);
  return found == origins_.end() ? "default" : found->second.to_string();
}

SpecError Loaded::error(const std::string& dotted, std::string what, std::string hint) const {
  const auto found = origins_.find(dotted);
  const SourceLocation location = found == origins_.end() ? SourceLocation{} : found->second;
  const std::string subject = location.is_default() ? "the job" : location.source->name;
  return SpecError(subject, {{location, dotted + ": " + std::move(what), std::move(hint)}});
}

std::string identity(const std::vector<Setting>& settings) {
  std::string text;
  for (const Setting& setting : settings) {
    if (setting.change != Change::safe) text += setting.key + ": " + setting.value + "\n";
  }
  return text;
}

std::vector<Difference> differences(const std::vector<Setting>& before, const std::vector<Setting>& after) {
  std::map<std::string, const Setting*> old;
  for (const Setting& setting : before) old[setting.key] = &setting;
  std::vector<Difference> found;
  for (const Setting& setting : after) {
    const auto known = old.find(setting.key);
    const std::string value = known == old.end() ? "" : known->second->value;
    if (value != setting.value) found.push_back({setting.key, value, setting.value, setting.change});
    if (known != old.end()) old.erase(known);
  }
  for (const Setting& setting : before) {
    if (old.contains(setting.key)) found.push_back({setting.key, setting.value, "", setting.change});
  }
  return found;
}

}  // namespace gputrain::config
