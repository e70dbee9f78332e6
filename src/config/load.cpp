#include "gputrain/config/load.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "check.hpp"
#include "interpolate.hpp"
#include "key_index.hpp"
#include "layers.hpp"
#include "yaml/write.hpp"

namespace gputrain::config {
namespace {

constexpr const char* kHidden = "***";

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

/// Returns whether a text has stars in the place of a secret, as without_url_secrets() and masked keys are written.
bool hides_secret(const std::string& text) {
  return text == kHidden || (text.find(kHidden) != std::string::npos && text.find("://") != std::string::npos);
}

/// Notes the texts with ${...} or hidden secrets below a node.
void note_texts(const Node& node, const std::string& dotted, Loaded::Written& written) {
  if (!node.written.empty()) written.references[dotted] = node.written;
  if (node.kind == Node::Kind::scalar && hides_secret(node.text)) written.hidden.push_back(dotted);
  if (node.kind != Node::Kind::map) return;
  for (const Node& part : node.parts) note_texts(part, join(dotted, part.key), written);
}

/// Changes "${env:A}" to "${env:A:-***}", so that the job can be read if A is not set.
std::string with_fallbacks(std::string text) {
  for (size_t at = text.find("${env:"); at != std::string::npos; at = text.find("${env:", at + 1)) {
    const size_t end = text.find('}', at);
    const bool is_escaped = at > 0 && text[at - 1] == '$';
    if (end == std::string::npos || is_escaped || text.substr(at, end - at).find(":-") != std::string::npos) continue;
    text.insert(end, std::string(":-") + kHidden);
  }
  return text;
}

/// Puts references in the place of the secrets that came from them.
void restore_references(Node& node, const std::string& dotted, const std::map<std::string, std::string>& references) {
  if (const auto found = references.find(dotted); found != references.end() && hides_secret(node.text))
    node.text = with_fallbacks(found->second);
  for (Node& part : node.parts) restore_references(part, join(dotted, part.key), references);
}

/// Reads the job; empty: there is nothing to read.
std::optional<Loaded> read(const Schema& schema, const Request& given, Problems& problems) {
  Request request = given;
  if (!request.environment) request.environment = of_this_process;
  Budget budget;
  for (const Problem& mistake : request.of_plugins) problems.add(mistake.location, mistake.what, mistake.hint);
  std::optional<Layers> layers = read_layers(request, budget, problems);
  if (!layers) return std::nullopt;
  Node* const job = &layers->job;
  job->location = file_location(request);  // the whole job: the place for missing keys
  const Gaps gaps{.keys = !layers->is_whole, .entries = !request.of_plugins.empty()};
  interpolate(*job, schema, request, gaps, budget, problems);
  const std::string record = request.is_record ? request.file.string() : "";
  Checker checker(schema, *job, {.environment = request.environment, .record = record, .gaps = gaps}, problems);
  std::shared_ptr<const void> spec = checker.run();
  Loaded::Written written{.origins = checker.take_origins(), .left_out = checker.take_left_out()};
  note_texts(*job, "", written);
  return Loaded(schema, std::move(spec), std::move(written));
}

/// Where a key was set, or a group begins.
SourceLocation place_of(const std::string& key, const std::map<std::string, SourceLocation>& origins) {
  for (const std::string& name : {key, key + "."})
    if (const auto found = origins.find(name); found != origins.end()) return found->second;
  return {};
}

}  // namespace

Loaded load(const Schema& schema, const Request& request) {
  Problems problems;
  std::optional<Loaded> job = read(schema, request, problems);
  if (problems.count() > 0) throw SpecError(problems.take());
  return *std::move(job);
}

Loaded load_despite_mistakes(const Schema& schema, const Request& request) {
  Problems ignored;
  std::optional<Loaded> job = read(schema, request, ignored);
  return job ? *std::move(job) : Loaded(schema, schema.create(), {});
}

Loaded::Loaded(const Schema& schema, std::shared_ptr<const void> spec, Written written)
    : schema_(&schema), spec_(std::move(spec)), written_(std::move(written)) {}

std::string Loaded::resolved_yaml(bool origins) const {
  Node root = node_of(*schema_, spec_.get());
  escape_interpolation(root);
  restore_references(root, "", written_.references);
  if (!origins) return to_yaml(root);
  return to_yaml(root, [this](const std::string& dotted) { return origin(dotted); });
}

std::vector<Setting> Loaded::settings() const { return settings_of(*schema_, spec_.get()); }

std::string Loaded::origin(const std::string& dotted) const {
  const auto found = written_.origins.find(dotted);
  return found == written_.origins.end() ? "default" : found->second.to_string();
}

void Loaded::require_secrets() const {
  if (written_.hidden.empty()) return;
  const std::string& key = written_.hidden.front();
  throw error(key, "*** stands for a secret, which was not written down",
              "give it again: --set '" + key + "=${env:NAME}', or its value, or null");
}

SpecError Loaded::error(const std::string& dotted, std::string what, std::string hint) const {
  SpecIssues issues;
  issues.add(dotted, std::move(what), std::move(hint));
  return error(issues);
}

SpecError Loaded::error(const SpecIssues& issues) const {
  std::vector<Problem> problems;
  for (const auto& [key, what, hint] : issues.all())
    problems.push_back({place_of(key, written_.origins), key + ": " + what, hint});
  return SpecError(std::move(problems));
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
