// Offline run of Weights & Biases in wandb/ of the run folder, for `wandb sync`. All attempts of a run are one file.
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "../append_line.hpp"
#include "../ending.hpp"
#include "../trackers/wandb_file.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/monitor/log_spec.hpp"
#include "gputrain/monitor/sink.hpp"
#include "gputrain/monitor/tracked_settings.hpp"

namespace gputrain::monitor {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBefore = "run-", kAfter = ".wandb";  // parts of the name around the id

/// Replaces characters that an id may not have.
std::string id_of(const std::string& run_id) {
  std::string id = run_id;
  std::ranges::replace_if(
      id, [](char c) { return std::string_view("/\\#?%:\" \t\n").find(c) != std::string_view::npos; }, '-');
  return id;
}

std::string chosen(const std::optional<std::string>& given, const char* variable, const std::string& otherwise) {
  return given.value_or(hub::environment_variable(variable).value_or(otherwise));
}

std::string json_of(double value) {
  if (std::isnan(value)) return "NaN";  // spelling of Python
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return nlohmann::json(value).dump();
}

std::string json_of(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class WandbSink final : public Sink {
 public:
  WandbSink(const WandbSpec& spec, const SinkRequest& request) : run_folder_(request.folder) {
    run_ = {.id = id_of(request.run_id),
            .project = chosen(spec.project, "WANDB_PROJECT", "uncategorized"),
            .entity = chosen(spec.entity, "WANDB_ENTITY", ""),
            .name = spec.name.value_or(request.run_id),
            .start_seconds = std::time(nullptr)};
    for (const auto& [key, yaml] : request.settings)
      run_.config[key] = value_of(yaml).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  bool is_slow() const override { return true; }
  bool shows_texts() const override { return true; }

  /// Adds to the row of the step, which holds all records of that step.
  void log(const Record& record) override {
    if (record.metrics.empty() && record.texts.empty()) return;
    if (rows_ == 0 || record.step != row_.step) {
      row_ = {.step = record.step, .values = {}};
      before_row_ = framing_;
      ++rows_;
    }
    for (const auto& [name, value] : record.metrics) row_.values[name] = json_of(value);
    for (const WrittenText& one : record.texts) row_.values[one.name] = json_of(one.whole());
    row_.values["epoch"] = json_of(record.epoch);
    note_time(row_);
    for (const auto& [name, value] : row_.values) summary_[name] = value;
    write_row();
  }

  /// Rewrites the file with the rows that stay. Removes the mark of `wandb sync`, because the run must be sent again.
  void truncate(int64_t step, int64_t evaluated_step) override {
    const fs::path folder = run_folder_ / "wandb";
    path_ = existing_in(folder);
    wandb::Past past;
    if (!path_.empty()) past = wandb::read(path_);
    if (past.start_seconds > 0) run_.start_seconds = past.start_seconds;
    if (!path_.empty()) run_.id = path_.stem().string().substr(kBefore.size());
    if (path_.empty())
      path_ =
          folder / ("offline-run-" + stamp() + "-" + run_.id) / (std::string(kBefore) + run_.id + std::string(kAfter));
    std::error_code failure;
    fs::create_directories(path_.parent_path() / "files", failure);
    if (failure)
      throw Error(ExitCode::environment,
                  {.what = "cannot be made: " + failure.message(), .where = path_.parent_path().string()});
    std::string content = framing_.next(wandb::header(run_.id));
    content += framing_.next(wandb::of(run_));
    for (wandb::Row& row : past.rows) content += kept(std::move(row), step, evaluated_step);
    write_file_atomically(path_, content, ExitCode::environment);
    fs::remove(path_.string() + ".synced", failure);
  }

  void close() override {
    const auto ending = ending_of(run_folder_);
    const int64_t runtime = std::time(nullptr) - run_.start_seconds;
    std::string last = framing_.next(wandb::summary(summary_));
    last += framing_.next(wandb::exit(ending ? ending->exit_code : 1, runtime, run_.id));
    append(last);
  }

 private:
  /// Returns the file of an earlier attempt, whose id stays though the job's id changes with its settings; empty: none.
  static fs::path existing_in(const fs::path& folder) {
    std::error_code absent;
    std::vector<fs::path> found;
    for (const auto& run : fs::directory_iterator(folder, absent)) {
      if (!run.path().filename().string().starts_with("offline-run-")) continue;
      for (const auto& entry : fs::directory_iterator(run.path(), absent)) {
        const bool is_run = entry.path().filename().string().starts_with(kBefore) && entry.path().extension() == kAfter;
        if (is_run && wandb::is_ours(entry.path())) found.push_back(entry.path());
      }
    }
    return found.empty() ? fs::path() : *std::ranges::max_element(found);
  }

  /// Returns the bytes of a row of an earlier attempt without values that the run repeats.
  std::string kept(wandb::Row row, int64_t step, int64_t evaluated_step) {
    if (row.step > step) return {};
    if (row.step > evaluated_step)
      std::erase_if(row.values, [](const auto& one) { return one.first.starts_with("val/"); });
    const auto is_own = [](const auto& one) { return one.first != "epoch" && !one.first.starts_with('_'); };
    if (std::ranges::none_of(row.values, is_own)) return {};
    for (const auto& [name, value] : row.values) summary_[name] = value;
    before_row_ = framing_;
    row_ = std::move(row);
    ++rows_;
    return framing_.next(wandb::of(row_));
  }

  std::string stamp() const {
    const std::time_t start = run_.start_seconds;
    std::tm local{};
    localtime_r(&start, &local);
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &local);
    return text.data();
  }

  void note_time(wandb::Row& row) const {
    const double now = seconds_since_epoch();
    row.values["_timestamp"] = json_of(now);
    row.values["_runtime"] = json_of(now - static_cast<double>(run_.start_seconds));
    row.values["_step"] = std::to_string(row.step);
  }

  /// Writes the row over its earlier version.
  void write_row() {
    const auto begin = static_cast<uintmax_t>(before_row_.size());
    std::error_code failure;
    if (fs::file_size(path_, failure) > begin) fs::resize_file(path_, begin, failure);
    framing_ = before_row_;
    wandb::Framing next = before_row_;
    if (append(next.next(wandb::of(row_)))) framing_ = next;
  }

  /// Warns once about a disk error, and tries later rows again.
  bool append(const std::string& bytes) {
    if (append_line(path_, bytes, /*sync=*/false)) return true;
    if (!std::exchange(has_failed_, true))
      log::warning(path_.string() + ": cannot append; training continues, but `wandb sync` lacks metrics");
    return false;
  }

  fs::path run_folder_, path_;
  wandb::Run run_;
  wandb::Framing framing_, before_row_;  // states after the newest row, and before it
  wandb::Row row_;                       // newest row
  int64_t rows_ = 0;
  wandb::Values summary_;
  bool has_failed_ = false;
};

const config::Registered<WandbSink, WandbSpec> registered_wandb{
    sinks(), "wandb", "a folder for `wandb sync` in wandb/ of the run folder"};

}  // namespace
}  // namespace gputrain::monitor
