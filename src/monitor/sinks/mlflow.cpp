// Run on an MLflow server. Values that the server does not take now are sent later.
#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "../append_line.hpp"
#include "../ending.hpp"
#include "../trackers/mlflow_server.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/secrets.hpp"
#include "gputrain/hub/cache.hpp"
#include "gputrain/monitor/sink.hpp"
#include "gputrain/monitor/tracked_settings.hpp"

namespace gputrain::monitor {
namespace {

constexpr size_t kMostWaiting = 100'000, kMostFiles = 1000;  // limits for metrics and files
constexpr size_t kMostFileBytes = size_t{64} << 20;

class MlflowSink final : public Sink {
 public:
  MlflowSink(const MlflowSpec& spec, const SinkRequest& request)
      : run_folder_(request.folder),
        access_(mlflow_access(spec, hub::environment_variable)),
        server_(access_),
        name_(spec.run_name.value_or(request.run_id)) {
    for (const auto& [key, yaml] : request.settings) {
      const auto value = value_of(yaml);
      params_[key] = value.is_string() ? value.get<std::string>() : yaml;
    }
  }

  bool is_slow() const override { return true; }
  bool shows_texts() const override { return true; }
  bool shows_pictures() const override { return true; }

  void log(const Record& record) override {
    const auto now = static_cast<int64_t>(seconds_since_epoch() * 1000);
    for (const auto& [name, value] : record.metrics) wait({name, value, now, record.step});
    if (record.kind == "train") wait({"epoch", record.epoch, now, record.step});
    if (!record.texts.empty()) wait_for_texts(record);
    for (const Picture& picture : record.pictures) wait_for_picture(picture, record.step);
    if (pauses_.are_over()) send();
  }

  void idle() override {
    if ((!waiting_.empty() || !files_.empty()) && pauses_.are_over()) send();
  }

  /// Reads the run to continue. MLflow has no call that removes metrics: repeated steps are there twice. Texts and
  /// pictures of a step are files, which are written over.
  void truncate(int64_t, int64_t) override {
    const auto state = parse_json_file(state_file());
    if (!state.is_object() || state.value("uri", nlohmann::json()) != shown_uri()) return;
    const auto id = state.value("run_id", nlohmann::json());
    if (id.is_string()) run_id_ = id.get<std::string>();
    has_params_ = state.value("has_params", nlohmann::json()) == true;
  }

  void close() override {
    server_.hurry(std::chrono::seconds(2));
    send();
    if (waiting_.empty() && files_.empty() && dropped_ == 0 && has_begun_) {
      end();
    } else if (const auto lost = static_cast<int64_t>(waiting_.size() + files_.size() + dropped_); lost > 0) {
      log::warning("log.mlflow: " + shown_uri() + " did not get " + counted(lost, "value"));
    }
  }

 private:
  struct File {
    std::string path;
    std::shared_ptr<const std::string> content;
  };

  std::filesystem::path state_file() const { return run_folder_ / "mlflow.json"; }
  std::string shown_uri() const { return without_url_secrets(access_.uri); }

  void wait(MlflowMetric metric) {
    if (waiting_.size() < kMostWaiting)
      waiting_.push_back(std::move(metric));
    else
      ++dropped_;
  }

  /// Keeps what the model has written as one file of the step.
  void wait_for_texts(const Record& record) {
    std::string content;
    for (const WrittenText& one : record.texts) content += "# " + one.name + "\n" + one.whole() + "\n\n";
    wait({fmt::format("samples/step-{:08}.txt", record.step), std::make_shared<const std::string>(std::move(content))});
  }

  void wait_for_picture(const Picture& picture, int64_t step) {
    const std::string path = fmt::format("pictures/step-{:08}/{}", step, picture.short_name());
    wait({path + ".png", picture.png});
    wait({path + ".txt", std::make_shared<const std::string>(picture.caption)});
  }

  void wait(File file) {
    if (files_.size() < kMostFiles && file_bytes_ + file.content->size() <= kMostFileBytes) {
      file_bytes_ += file.content->size();
      files_.push_back(std::move(file));
    } else {
      ++dropped_;
    }
  }

  void send() {
    try {
      begin();
      while (!waiting_.empty()) {
        const auto count = static_cast<std::ptrdiff_t>(std::min(waiting_.size(), MlflowServer::kMostMetrics));
        server_.log_metrics(run_id_, {waiting_.begin(), waiting_.begin() + count});
        waiting_.erase(waiting_.begin(), waiting_.begin() + count);
      }
      for (; !files_.empty(); files_.pop_front()) {
        const File& file = files_.front();
        const bool is_kept = server_.log_file(file.path, *file.content);
        file_bytes_ -= file.content->size();
        if (is_kept || std::exchange(has_told_of_files_, true)) continue;
        log::warning("log.mlflow: " + shown_uri() +
                     " keeps no files: what the model writes is in samples.jsonl alone, and pictures of the newest "
                     "evaluation are in report.html");
      }
      pauses_.end();
    } catch (const net::Interruption& trouble) {
      tell_once(trouble.what());
      pauses_.begin();
    }
  }

  void begin() {
    if (has_begun_) return;
    if (!run_id_.empty() && !server_.continue_run(run_id_)) {
      run_id_.clear();
      has_params_ = false;
    }
    if (run_id_.empty()) {
      run_id_ = server_.begin_run(server_.experiment(), name_);
      save_state();
    }
    if (!has_params_) {  // parameters of a run never change on the server
      server_.log_params(run_id_, params_);
      has_params_ = true;
      save_state();
    }
    has_begun_ = true;
  }

  /// Saves what the next attempt needs to continue the run.
  void save_state() const {
    const nlohmann::ordered_json state{{"uri", shown_uri()}, {"run_id", run_id_}, {"has_params", has_params_}};
    try {
      write_file_atomically(state_file(), state.dump(2) + "\n", ExitCode::environment);
    } catch (const Error& full) {
      log::warning(std::string(full.what()) + "; the next attempt begins another run on the MLflow server");
    }
  }

  void end() {
    const auto ending = ending_of(run_folder_);
    const bool is_stopped = ending && ending->status == "stopped";
    try {
      server_.end_run(run_id_, is_stopped ? "KILLED" : ending && ending->status == "done" ? "FINISHED" : "FAILED");
    } catch (const net::Interruption& trouble) {
      tell_once(trouble.what());
    }
  }

  void tell_once(const std::string& trouble) {
    if (std::exchange(has_told_, true)) return;
    log::warning("log.mlflow: " + shown_uri() + ": " + trouble +
                 "; training continues, and metrics are sent when the server answers");
  }

  std::filesystem::path run_folder_;
  MlflowAccess access_;
  MlflowServer server_;
  std::string name_, run_id_;
  std::map<std::string, std::string> params_;
  std::deque<MlflowMetric> waiting_;
  std::deque<File> files_;
  size_t file_bytes_ = 0, dropped_ = 0;
  Pauses pauses_;
  bool has_begun_ = false, has_params_ = false, has_told_ = false, has_told_of_files_ = false;
};

const config::Registered<MlflowSink, MlflowSpec> registered_mlflow{sinks(), "mlflow", "an MLflow server (log.mlflow)"};

}  // namespace
}  // namespace gputrain::monitor
