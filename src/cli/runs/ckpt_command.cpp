// Commands `gputrain ckpt ls` and `verify`.
#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/ckpt_folder.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/progress.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using Kind = CkptEntry::Kind;
using Json = nlohmann::ordered_json;

/// Returns the checkpoint that resuming would take, as far as manifests and sizes tell; null: there is none.
const CkptEntry* latest_of(const std::vector<CkptEntry>& entries) {
  const CkptEntry* latest = nullptr;
  for (const auto& entry : entries) {
    if (entry.kind == Kind::checkpoint && entry.problem.empty()) latest = &entry;
  }
  return latest;
}

/// Returns the best by the newest one's metric, the earlier one of two equals; null: none has a score.
const CkptEntry* best_of(const std::vector<CkptEntry>& entries) {
  const std::string metric = metric_of(entries);
  const bool smaller = tasks::smaller_is_better(metric);
  const CkptEntry* best = nullptr;
  for (const auto& entry : entries) {
    if (entry.kind != Kind::checkpoint || !entry.problem.empty() || !entry.score || entry.score->metric != metric)
      continue;
    const double value = entry.score->value;
    if (best == nullptr || (smaller ? value < best->score->value : value > best->score->value)) best = &entry;
  }
  return best;
}

std::string remark_on(const CkptEntry& entry, const CkptEntry* latest, const CkptEntry* best) {
  if (entry.kind == Kind::set_aside && !entry.folder.has_extension())
    return "of a branch that was left: " + entry.name();
  if (entry.kind == Kind::set_aside) return "set aside as " + entry.name();
  if (entry.kind == Kind::left_over) return "half written: " + entry.name();
  if (!entry.problem.empty()) return "bad: " + entry.problem;
  std::string remark;
  if (&entry == latest) remark = "latest";
  if (&entry == best) remark += remark.empty() ? "best" : ", best";
  return remark;
}

/// Returns the folders with checkpoints of earlier runs, which this one has moved aside when it started over.
std::vector<fs::path> earlier_folders(const fs::path& folder) {
  std::vector<fs::path> folders;
  if (folder.filename() != "ckpt") return folders;
  for (const fs::path& run : earlier_runs_of(fs::absolute(folder).parent_path()))
    folders.push_back(RunFolder{run}.checkpoints());
  return folders;
}

Json listing_json(const fs::path& folder, const std::vector<CkptEntry>& entries) {
  Json json{{"folder", folder.string()},  {"checkpoints", Json::array()}, {"set_aside", Json::array()},
            {"left_over", Json::array()}, {"earlier", Json::array()},     {"bytes", 0}};
  const CkptEntry *latest = latest_of(entries), *best = best_of(entries);
  uint64_t bytes = 0;
  for (const auto& entry : entries) {
    Json item = entry_json(entry);
    bytes += entry.bytes;
    if (entry.kind == Kind::checkpoint) {
      item["score"] = nullptr;
      if (entry.score) item["score"] = {{"metric", entry.score->metric}, {"value", entry.score->value}};
      item["latest"] = &entry == latest;
      item["best"] = &entry == best;
      item["problem"] = entry.problem.empty() ? Json(nullptr) : Json(entry.problem);
      json["checkpoints"].push_back(std::move(item));
    } else {
      json[item["kind"].get<std::string>()].push_back(std::move(item));
    }
  }
  for (const fs::path& earlier : earlier_folders(folder)) json["earlier"].push_back(earlier.string());
  json["bytes"] = bytes;
  return json;
}

std::string listing_text(const fs::path& folder, const std::vector<CkptEntry>& entries) {
  if (entries.empty()) return "no checkpoints in " + folder.string() + "\n";
  const CkptEntry *latest = latest_of(entries), *best = best_of(entries);
  TextTable table("rlrrl");
  table.add({"step", "written", "size", "score"});
  std::map<Kind, size_t> counts;
  uint64_t bytes = 0;
  for (const auto& entry : entries) {
    ++counts[entry.kind];
    bytes += entry.bytes;
    table.add({grouped(entry.step), entry.written ? time_text(*entry.written, /*utc=*/false) : "?",
               size_text(entry.bytes),
               entry.score ? entry.score->metric + " " + monitor::significant(entry.score->value) : "",
               remark_on(entry, latest, best)});
  }
  std::string total = counted(static_cast<int64_t>(counts[Kind::checkpoint]), "checkpoint");
  if (counts[Kind::set_aside] > 0) total += fmt::format(", {} set aside", counts[Kind::set_aside]);
  if (counts[Kind::left_over] > 0) total += fmt::format(", {} half written", counts[Kind::left_over]);
  return table.text() + fmt::format("{}, {} in {}\n", total, size_text(bytes), folder.string());
}

std::vector<fs::path> checkpoints_of(const fs::path& named) {
  if (is_one_checkpoint(named)) return {named};
  std::vector<fs::path> folders;
  for (const auto& entry : entries_of(checkpoints_folder(named))) {
    if (entry.kind == Kind::checkpoint) folders.push_back(entry.folder);
  }
  return folders;
}

struct Verified {
  std::string path, problem;
};

/// Verifies the checkpoints one by one and calls `tell` after each: reading all of them may take minutes.
template <class Tell>
std::vector<Verified> verify_each(const std::vector<fs::path>& folders, Tell tell) {
  std::vector<Verified> verified;
  for (const auto& folder : folders) {
    Verified each{folder.string(), problem_of(folder)};
    const bool was_pruned_meanwhile = !each.problem.empty() && !fs::exists(folder);  // the running job prunes
    if (was_pruned_meanwhile) continue;
    tell(each);
    verified.push_back(std::move(each));
  }
  return verified;
}

}  // namespace

int ckpt_ls_command(const std::string& run, bool json) {
  const fs::path folder = checkpoints_folder(run);
  const auto entries = entries_of(folder);
  if (json) {
    print_json(listing_json(folder, entries));
    return 0;
  }
  std::string text = listing_text(folder, entries);
  for (const fs::path& earlier : earlier_folders(folder))
    text += "\nof an earlier run:\n" + listing_text(earlier, entries_of(earlier));
  std::fputs(text.c_str(), stdout);
  return 0;
}

int ckpt_verify_command(const std::string& path, bool json) {
  const auto verified = verify_each(checkpoints_of(path), [&](const Verified& each) {
    if (json) return;
    std::printf("%s  %s\n", each.path.c_str(), each.problem.empty() ? "ok" : each.problem.c_str());
    std::fflush(stdout);
  });
  const bool ok = !verified.empty() && std::all_of(verified.begin(), verified.end(),
                                                   [](const Verified& each) { return each.problem.empty(); });
  if (!json && verified.empty()) std::printf("no checkpoints in %s\n", path.c_str());
  if (json) {
    Json document{{"ok", ok}, {"checkpoints", Json::array()}};
    for (const auto& each : verified) {
      document["checkpoints"].push_back({{"path", each.path},
                                         {"ok", each.problem.empty()},
                                         {"problem", each.problem.empty() ? Json(nullptr) : Json(each.problem)}});
    }
    print_json(document);
  }
  return ok ? 0 : static_cast<int>(ExitCode::checkpoint);
}

}  // namespace gputrain::app
