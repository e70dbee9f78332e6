// Command `gputrain ckpt diff`: prints the differences between two checkpoints, as text or JSON.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/checkpoint_difference.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

using checkpoint::Checkpoint;
using DiffJson = nlohmann::ordered_json;

constexpr size_t kWorstShown = 5;  // limit per file
constexpr size_t kUnpairedShown = 8;
constexpr size_t kNameWidth = 50, kValueWidth = 34;

std::string run_of(const Checkpoint& checkpoint) {
  const auto& state = checkpoint.state();
  const bool has_id = state.is_object() && state.contains("run_id") && state["run_id"].is_string();
  return has_id ? state["run_id"].get<std::string>() : "";
}

std::string sides_text(const CheckpointDifference& difference) {
  TextTable table("llll");
  for (const auto& [letter, side] : {std::pair{"A", &difference.a}, std::pair{"B", &difference.b}}) {
    const Checkpoint& checkpoint = side->checkpoint;
    table.add({letter, checkpoint.folder().string(), "step " + grouped(checkpoint.step()), run_of(checkpoint)});
    for (const auto& skipped : side->skipped) table.add({"", "not " + skipped});
  }
  return table.text();
}

std::string settings_text(const std::vector<SettingDifference>& settings) {
  if (settings.empty()) return "settings  equal\n";
  TextTable table("llll");
  table.add({"settings", "A", "B", "on resume"});
  for (const auto& each : settings) {
    table.add({"  " + each.key, each.a.empty() ? "-" : shortened(each.a, kValueWidth),
               each.b.empty() ? "-" : shortened(each.b, kValueWidth), each.change});
  }
  return table.text();
}

std::string metrics_text_of(const std::vector<MetricPair>& metrics) {
  const auto shown = [](std::optional<double> value) { return value ? monitor::significant(*value) : "-"; };
  TextTable table("lrrr");
  table.add({"metrics", "A", "B", "B - A"});
  bool any = false;
  for (const auto& each : metrics) {
    if (each.a == each.b) continue;
    any = true;
    const bool both = each.a && each.b;
    table.add({"  " + each.name, shown(each.a), shown(each.b), both ? monitor::significant(*each.b - *each.a) : ""});
  }
  return any ? table.text() : "metrics  equal\n";
}

std::string summary_text(const std::vector<FileDifference>& files) {
  TextTable table("lrrrrl");
  table.add({"tensors", "differing", "elements differing", "largest abs", "largest rel"});
  for (const auto& file : files) {
    const TensorDifference& total = file.total;
    std::string remark;
    if (!file.only_in_a.empty()) remark += fmt::format("{} only in A  ", file.only_in_a.size());
    if (!file.only_in_b.empty()) remark += fmt::format("{} only in B  ", file.only_in_b.size());
    if (!file.other_kind.empty()) remark += fmt::format("{} of another shape or dtype", file.other_kind.size());
    const bool differs = total.differing > 0;
    table.add({"  " + file.name, fmt::format("{} of {}", file.differing.size(), file.tensors),
               fmt::format("{} of {}", grouped(total.differing), grouped(total.elements)),
               differs ? monitor::significant(total.largest_absolute) : "",
               differs ? monitor::significant(total.largest_relative) : "",
               remark.empty() && !differs ? "equal" : remark});
  }
  return table.text();
}

std::string unpaired_text(const FileDifference& file) {
  TextTable table("lll");
  size_t left = kUnpairedShown;
  const auto add = [&](const std::string& tensor, const std::string& remark) {
    if (left > 0) table.add({"  " + file.name, shortened(tensor, kNameWidth), remark});
    if (left > 0) --left;
  };
  for (const auto& each : file.other_kind) add(each.name, each.a + " in A, " + each.b + " in B");
  for (const auto& tensor : file.only_in_a) add(tensor, "only in A");
  for (const auto& tensor : file.only_in_b) add(tensor, "only in B");
  const size_t count = file.other_kind.size() + file.only_in_a.size() + file.only_in_b.size();
  if (count > kUnpairedShown)
    table.add({"  " + file.name, fmt::format("... and {} more: --json", count - kUnpairedShown)});
  return table.text();
}

std::string worst_text(const std::vector<FileDifference>& files) {
  TextTable table("llrrr");
  table.add({"largest differences", "", "elements", "abs", "rel"});
  bool any = false;
  for (const auto& file : files) {
    for (size_t i = 0; i < std::min(kWorstShown, file.differing.size()); ++i) {
      any = true;
      const auto& each = file.differing[i];
      const auto& [elements, differing, absolute, relative] = each.difference;
      table.add({"  " + file.name + " " + shortened(each.name, kNameWidth), each.kind,
                 fmt::format("{} of {}", grouped(differing), grouped(elements)), monitor::significant(absolute),
                 monitor::significant(relative)});
    }
  }
  return any ? table.text() : "";
}

std::string difference_text(const CheckpointDifference& difference) {
  std::string unpaired;
  for (const auto& file : difference.files) unpaired += unpaired_text(file);
  if (!unpaired.empty()) unpaired = "without a counterpart\n" + unpaired;
  std::string text = sides_text(difference);
  for (const std::string& part : {settings_text(difference.settings), metrics_text_of(difference.metrics),
                                  summary_text(difference.files), unpaired, worst_text(difference.files)}) {
    if (!part.empty()) text += "\n" + part;
  }
  return text + (difference.is_equal() ? "\nall tensors are equal bit for bit\n" : "\nthe tensors differ\n");
}

DiffJson side_json(const ChosenCheckpoint& side) {
  return {{"path", side.checkpoint.folder().string()},
          {"step", side.checkpoint.step()},
          {"run_id", run_of(side.checkpoint)},
          {"skipped", side.skipped}};
}

/// Writes the figures; infinite numbers become null.
DiffJson figures_json(const TensorDifference& difference) {
  return {{"elements", difference.elements},
          {"differing_elements", difference.differing},
          {"largest_absolute", difference.largest_absolute},
          {"largest_relative", difference.largest_relative}};
}

DiffJson file_json(const FileDifference& file) {
  DiffJson json{{"name", file.name}, {"tensors", file.tensors}, {"differing_tensors", file.differing.size()}};
  json.update(figures_json(file.total));
  json["only_in_a"] = file.only_in_a;
  json["only_in_b"] = file.only_in_b;
  json["other_kind"] = DiffJson::array();
  for (const auto& each : file.other_kind)
    json["other_kind"].push_back({{"name", each.name}, {"a", each.a}, {"b", each.b}});
  json["differing"] = DiffJson::array();
  for (const auto& each : file.differing) {
    DiffJson item{{"name", each.name}, {"kind", each.kind}};
    item.update(figures_json(each.difference));
    json["differing"].push_back(std::move(item));
  }
  return json;
}

DiffJson difference_json(const CheckpointDifference& difference) {
  DiffJson json{{"equal", difference.is_equal()}, {"a", side_json(difference.a)}, {"b", side_json(difference.b)},
                {"settings", DiffJson::array()},  {"metrics", DiffJson::array()}, {"files", DiffJson::array()}};
  for (const auto& each : difference.settings) {
    json["settings"].push_back({{"key", each.key}, {"a", each.a}, {"b", each.b}, {"on_resume", each.change}});
  }
  const auto figure = [](std::optional<double> value) { return value ? DiffJson(*value) : DiffJson(nullptr); };
  for (const auto& each : difference.metrics) {
    json["metrics"].push_back({{"name", each.name}, {"a", figure(each.a)}, {"b", figure(each.b)}});
  }
  for (const auto& file : difference.files) json["files"].push_back(file_json(file));
  return json;
}

}  // namespace

int ckpt_diff_command(const std::string& a, const std::string& b, bool json) {
  const CheckpointDifference difference = compare_checkpoints(choose_checkpoint(a), choose_checkpoint(b));
  const std::string text =
      json ? difference_json(difference).dump(2, ' ', false, DiffJson::error_handler_t::replace) + "\n"
           : difference_text(difference);
  std::fputs(text.c_str(), stdout);
  return static_cast<int>(difference.is_equal() ? ExitCode::done : ExitCode::refused);
}

}  // namespace gputrain::app
