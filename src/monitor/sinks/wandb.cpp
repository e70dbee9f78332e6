// Run of Weights & Biases: in wandb/ of the run folder, for `wandb sync`, and live on a server where there is a key.
// All attempts of a run are one file.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "../append_line.hpp"
#include "../background_sink.hpp"
#include "../ending.hpp"
#include "../trackers/wandb_rows.hpp"
#include "../trackers/wandb_upload.hpp"
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

/// Returns the id of a run on a server, where another run folder may have a run of the same job.
std::string new_id(const std::string& id) {
  return fmt::format("{}-{:06x}", id.substr(0, 100), std::random_device()() & 0xffffff);
}

class WandbSink final : public Sink {
 public:
  WandbSink(const WandbSpec& spec, const SinkRequest& request)
      : run_folder_(request.folder), access_(wandb::access_of(spec, hub::environment_variable)) {
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
    if (!wandb::has_values(record) || is_off()) return;
    if (!rows_.is_at(record.step)) before_row_ = framing_;
    rows_.add(record);
    write_row();
    if (online_) online_->log(record);
  }

  std::string place() const override {
    return online_    ? online_->place()
           : is_off() ? access_.why
                      : access_.why + "  " + wandb::Written{.file = path_}.sync_command(false);
  }

  /// Rewrites the file with the rows that stay. Removes the mark of `wandb sync`, because the run must be sent again.
  void truncate(int64_t step, int64_t evaluated_step) override {
    if (is_off()) return;
    const fs::path folder = run_folder_ / "wandb";
    path_ = existing_in(folder);
    const bool is_new = path_.empty(), is_online = access_.mode == wandb::Mode::online;
    wandb::Past past;
    if (!is_new) past = wandb::read(path_);
    if (past.start_seconds > 0) run_.start_seconds = past.start_seconds;
    rows_.set_start(run_.start_seconds);
    if (!is_new) run_.id = path_.stem().string().substr(kBefore.size());
    if (is_new && is_online) run_.id = new_id(run_.id);
    if (is_new)
      path_ =
          folder / ("offline-run-" + stamp() + "-" + run_.id) / (std::string(kBefore) + run_.id + std::string(kAfter));
    std::error_code failure;
    fs::create_directories(path_.parent_path() / "files", failure);
    if (failure)
      throw Error(ExitCode::environment,
                  {.what = "cannot be made: " + failure.message(), .where = path_.parent_path().string()});
    std::string content = framing_.next(wandb::header(run_.id));
    content += framing_.next(wandb::of(run_));
    std::erase_if(past.rows, [&](wandb::Row& row) { return !stays(row, step, evaluated_step); });
    for (const wandb::Row& row : past.rows) {
      before_row_ = framing_;
      rows_.take(row);
      content += framing_.next(wandb::of(row));
    }
    write_file_atomically(path_, content, ExitCode::environment);
    fs::remove(path_.string() + ".synced", failure);
    if (!is_online) return;
    online_ = std::make_unique<BackgroundSink>(
        "wandb", wandb::upload(access_, {run_folder_, path_, run_, std::move(past.rows), is_new}, has_uploaded_),
        BackgroundSink::Options{.patience = kPatience});
    online_->truncate(step, evaluated_step);
  }

  void close() override {
    if (is_off()) return;
    const auto ending = ending_of(run_folder_);
    const int64_t runtime = std::time(nullptr) - run_.start_seconds;
    std::string last = framing_.next(wandb::summary(rows_.summary()));
    last += framing_.next(wandb::exit(ending ? ending->exit_code : 1, runtime, run_.id));
    append(last);
    if (!online_) return;
    online_->close();
    if (!*has_uploaded_)
      log::warning("log.wandb: the server may lack the end of the run; the same command sends what is missing, or " +
                   wandb::Written{.file = path_, .run = run_}.sync_command(true));
  }

 private:
  static constexpr std::chrono::seconds kPatience{4};  // less than the recorder has for this sink

  bool is_off() const { return access_.mode == wandb::Mode::disabled; }

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

  /// Removes values that the run repeats from a row of an earlier attempt. Returns whether something stays.
  static bool stays(wandb::Row& row, int64_t step, int64_t evaluated_step) {
    if (row.step > step) return false;
    if (row.step > evaluated_step)
      std::erase_if(row.values, [](const auto& one) { return one.first.starts_with("val/"); });
    const auto is_own = [](const auto& one) { return one.first != "epoch" && !one.first.starts_with('_'); };
    return std::ranges::any_of(row.values, is_own);
  }

  std::string stamp() const {
    const std::time_t start = run_.start_seconds;
    std::tm local{};
    localtime_r(&start, &local);
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &local);
    return text.data();
  }

  /// Writes the row over its earlier version.
  void write_row() {
    const auto begin = static_cast<uintmax_t>(before_row_.size());
    std::error_code failure;
    if (fs::file_size(path_, failure) > begin) fs::resize_file(path_, begin, failure);
    framing_ = before_row_;
    wandb::Framing next = before_row_;
    if (append(next.next(wandb::of(rows_.row())))) framing_ = next;
  }

  /// Warns once about a disk error, and tries later rows again.
  bool append(const std::string& bytes) {
    if (append_line(path_, bytes, /*sync=*/false)) return true;
    if (!std::exchange(has_failed_, true))
      log::warning(path_.string() + ": cannot append; training continues, but `wandb sync` lacks metrics");
    return false;
  }

  fs::path run_folder_, path_;
  wandb::Access access_;
  wandb::Run run_;
  wandb::Framing framing_, before_row_;  // states after the newest row, and before it
  wandb::Rows rows_{0};
  bool has_failed_ = false;
  std::unique_ptr<Sink> online_;  // none: the run is not shown
  const std::shared_ptr<std::atomic<bool>> has_uploaded_ = std::make_shared<std::atomic<bool>>(false);
};

const config::Registered<WandbSink, WandbSpec> registered_wandb{sinks(), "wandb",
                                                                "a run of Weights & Biases (log.wandb)"};

}  // namespace
}  // namespace gputrain::monitor
