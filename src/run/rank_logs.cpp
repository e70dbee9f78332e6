#include "gputrain/run/rank_logs.hpp"

#include <climits>

#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/monitor/archive_lines.hpp"

namespace gputrain::app {

namespace {

void try_to_open_log(const RunFolder& folder, const RankContext& context, bool tells) {
  try {
    log::open_file(folder.log(context.rank()));
  } catch (const Error& refusal) {
    if (context.rank() == 0) throw;
    if (tells) log::own_warning(refusal.what());
  }
}

}  // namespace

void open_log(const RunFolder& folder, const RankContext& context) { try_to_open_log(folder, context, /*tells=*/true); }

int64_t truncate_logs(const RunFolder& folder, const RankContext& context, const train::Progress& progress) {
  const auto cut = [&](int rank) {
    return monitor::truncate_log(folder.log(rank), progress.step, progress.evaluated_step);
  };
  int64_t count = 0;
  try {
    count = cut(context.rank());
    const int gone = context.rank() == 0 ? context.groups.world_size() : INT_MAX;
    for (int rank = gone; rank != INT_MAX && std::filesystem::exists(folder.log(rank)); ++rank) cut(rank);
  } catch (const Error& error) {
    log::warning(std::string("the log still has lines about steps that are repeated: ") + error.what());
  }
  try_to_open_log(folder, context, /*tells=*/log::has_file());  // truncating has replaced the file
  return count;
}

}  // namespace gputrain::app
