// Event files for TensorBoard in tb/ of the run folder, a file for each attempt.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <ctime>
#include <system_error>
#include <utility>
#include <vector>

#include "../append_line.hpp"
#include "../ending.hpp"
#include "../trackers/event_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "events.out.tfevents.", kEnd = ".gputrain";

class TensorboardSink final : public Sink {
 public:
  TensorboardSink(const config::NoOptions&, const SinkRequest& request)
      : run_folder_(request.folder),
        folder_(request.folder / "tb"),
        settings_(events::session_start(request.settings, request.run_id)) {}

  bool is_slow() const override { return true; }
  bool shows_texts() const override { return true; }
  bool shows_pictures() const override { return true; }

  void log(const Record& record) override { append(events::of(record)); }

  void truncate(int64_t step, int64_t evaluated_step) override {
    std::error_code failure;
    fs::create_directory(folder_, failure);
    if (failure)
      throw Error(ExitCode::environment, {.what = "cannot be made: " + failure.message(), .where = folder_.string()});
    const std::vector<fs::path> files = event_files();
    for (const fs::path& file : files) events::truncate_file(file, folder_ / "later.left", step, evaluated_step);
    path_ = name_after(files);
    begin_ = events::header() + events::start(step + 1) + settings_;
  }

  void close() override {
    const auto ending = ending_of(run_folder_);
    append(events::session_end(ending && ending->status != "failed"));
  }

 private:
  /// Lists our files: those of other programs are not changed.
  std::vector<fs::path> event_files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(kBegin) && name.ends_with(kEnd)) files.push_back(entry.path());
    }
    std::ranges::sort(files);
    return files;
  }

  /// Names a file after all others: TensorBoard reads files in the order of their names, which begin with the time.
  fs::path name_after(const std::vector<fs::path>& files) const {
    int64_t seconds = std::time(nullptr);
    for (const fs::path& file : files) {
      const std::string name = file.filename().string();
      int64_t other = 0;
      std::from_chars(name.data() + kBegin.size(), name.data() + name.size(), other);
      if (other < INT64_MAX) seconds = std::max(seconds, other + 1);
    }
    return folder_ / (std::string(kBegin) + std::to_string(seconds) + std::string(kEnd));
  }

  /// Appends and flushes one event. Warns once about a disk error, and tries later events again.
  void append(const std::string& event) {
    const std::string before = has_begun_ ? "" : begin_;
    if (append_line(path_, before + event, /*sync=*/false)) {
      has_begun_ = true;
    } else if (!std::exchange(has_failed_, true)) {
      log::warning(path_.string() + ": cannot append; training continues, but TensorBoard lacks metrics");
    }
  }

  fs::path run_folder_, folder_, path_;
  std::string settings_, begin_;  // begin_: start of each file
  bool has_begun_ = false, has_failed_ = false;
};

const config::Registered<TensorboardSink, config::NoOptions> registered_tensorboard{
    sinks(), "tensorboard", "event files for TensorBoard in tb/ of the run folder"};

}  // namespace
}  // namespace gputrain::monitor
