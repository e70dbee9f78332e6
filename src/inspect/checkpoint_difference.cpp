#include "gputrain/inspect/checkpoint_difference.hpp"

#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/store.hpp"
#include "gputrain/config/load.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/inspect/ckpt_folder.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;
using checkpoint::Part;

/// Returns a part of the state as an object; empty if it is not an object.
nlohmann::json object_at(const Checkpoint& checkpoint, const char* pointer) {
  const nlohmann::json::json_pointer where(pointer);
  const auto& state = checkpoint.state();
  return state.contains(where) && state[where].is_object() ? state[where] : nlohmann::json::object();
}

std::map<std::string, std::string> settings_in(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> settings;
  const auto stored = object_at(checkpoint, "/settings");
  for (const auto& [key, value] : stored.items()) {
    if (value.is_string()) settings[key] = value.get<std::string>();
  }
  return settings;
}

/// Returns the effect of each setting's change. Only the schema knows it, so the job is loaded again from its settings.
/// Those of another version of gputrain may not load: then the result is empty.
std::map<std::string, config::Change> changes_of(const std::map<std::string, std::string>& settings) {
  config::Request request;
  for (const auto& [key, value] : settings) request.set.push_back(key + "=" + value);
  std::map<std::string, config::Change> changes;
  try {
    for (const auto& setting : config::load(job_schema(), request).settings()) changes[setting.key] = setting.change;
  } catch (const Error&) {
    changes.clear();
  }
  return changes;
}

std::string name_of(config::Change change) {
  switch (change) {
    case config::Change::safe:
      return "safe";
    case config::Change::needs_accept:
      return "needs --accept";
    default:
      return "refused";
  }
}

std::vector<SettingDifference> differing_settings(const Checkpoint& a, const Checkpoint& b) {
  const auto before = settings_in(a), after = settings_in(b);
  auto changes = changes_of(before);
  changes.merge(changes_of(after));
  std::set<std::string> keys;
  for (const auto* settings : {&before, &after}) {
    for (const auto& [key, value] : *settings) keys.insert(key);
  }
  const auto value_in = [](const auto& settings, const std::string& key) {
    const auto found = settings.find(key);
    return found == settings.end() ? std::string() : found->second;
  };
  std::vector<SettingDifference> differences;
  for (const auto& key : keys) {
    SettingDifference difference{
        .key = key, .a = value_in(before, key), .b = value_in(after, key), .change = "unknown"};
    if (difference.a == difference.b) continue;
    const auto change = changes.find(key);
    if (change != changes.end()) difference.change = name_of(change->second);
    differences.push_back(std::move(difference));
  }
  const auto weight = [](const SettingDifference& each) {
    return each.change == "refused" ? 0 : each.change == "needs --accept" ? 1 : each.change == "unknown" ? 2 : 3;
  };
  std::stable_sort(differences.begin(), differences.end(),
                   [&](const auto& first, const auto& second) { return weight(first) < weight(second); });
  return differences;
}

std::vector<MetricPair> metrics_in(const Checkpoint& a, const Checkpoint& b) {
  std::map<std::string, MetricPair> pairs;
  const auto take = [&](const Checkpoint& from, std::optional<double> MetricPair::*side) {
    const auto metrics = object_at(from, "/progress/metrics");
    for (const auto& [name, value] : metrics.items()) {
      pairs[name].name = name;
      if (value.is_number()) pairs[name].*side = value.get<double>();
    }
  };
  take(a, &MetricPair::a);
  take(b, &MetricPair::b);
  std::vector<MetricPair> list;
  for (auto& [name, pair] : pairs) list.push_back(std::move(pair));
  return list;
}

std::string kind_of(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", at::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

void compare_tensor(const std::string& name, const at::Tensor& a, const at::Tensor& b, FileDifference& file) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    file.other_kind.push_back({name, kind_of(a), kind_of(b)});
    return;
  }
  const TensorDifference difference = difference_between(a, b);
  ++file.tensors;
  file.total.add(difference);
  if (difference.differing > 0) file.differing.push_back({name, kind_of(a), difference});
}

/// Compares two files; a missing one counts as a file without tensors.
FileDifference compare_files(const std::string& name, const Part* a, const Part* b) {
  FileDifference file{.name = name};
  for (const auto& tensor : a == nullptr ? std::vector<std::string>() : a->names()) {
    if (b != nullptr && b->contains(tensor))
      compare_tensor(tensor, a->tensor(tensor), b->tensor(tensor), file);
    else
      file.only_in_a.push_back(tensor);
  }
  for (const auto& tensor : b == nullptr ? std::vector<std::string>() : b->names()) {
    if (a == nullptr || !a->contains(tensor)) file.only_in_b.push_back(tensor);
  }
  std::stable_sort(file.differing.begin(), file.differing.end(), [](const auto& first, const auto& second) {
    return first.difference.largest_absolute > second.difference.largest_absolute;
  });
  return file;
}

std::vector<FileDifference> compare_all_files(const Checkpoint& a, const Checkpoint& b) {
  std::map<std::string, std::pair<const Part*, const Part*>> files;
  for (const auto& name : a.part_names()) files[name].first = &a.part(name);
  for (const auto& name : b.part_names()) files[name].second = &b.part(name);
  std::vector<FileDifference> differences;
  for (const auto& [name, pair] : files) differences.push_back(compare_files(name, pair.first, pair.second));
  return differences;
}

}  // namespace

ChosenCheckpoint choose_checkpoint(const fs::path& named) {
  if (is_one_checkpoint(named)) return {Checkpoint::open(named), {}};
  const fs::path folder = checkpoints_folder(named);
  auto search = checkpoint::find_newest({checkpoint::branch_folder(folder, checkpoint::newest_branch_in(folder))});
  std::vector<std::string> skipped;
  for (const auto& rejected : search.rejected) {
    skipped.push_back(rejected.folder.filename().string() + ": " + told_within(rejected.folder, rejected.reason));
  }
  if (!search.newest) {
    throw Error(ExitCode::checkpoint,
                {.what = skipped.empty() ? "there is no checkpoint" : "there is no good checkpoint; " + skipped.front(),
                 .where = folder.string()});
  }
  return {std::move(*search.newest), std::move(skipped)};
}

CheckpointDifference compare_checkpoints(ChosenCheckpoint a, ChosenCheckpoint b) {
  CheckpointDifference difference{.a = std::move(a), .b = std::move(b)};
  const Checkpoint &first = difference.a.checkpoint, &second = difference.b.checkpoint;
  difference.settings = differing_settings(first, second);
  difference.metrics = metrics_in(first, second);
  difference.files = compare_all_files(first, second);
  return difference;
}

}  // namespace gputrain::app
