#include "wandb_upload.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <deque>
#include <fstream>
#include <utility>

#include "../append_line.hpp"
#include "../ending.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/secrets.hpp"
#include "wandb_rows.hpp"

namespace gputrain::monitor::wandb {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostWaiting = 100'000;                                   // rows
constexpr size_t kMostLines = 1000, kMostBytes = size_t{4} << 20;          // limits for one request
constexpr std::chrono::seconds kBetween{15}, kBeat{30};                    // between requests with rows, and without
constexpr std::chrono::seconds kMostAtStart{5}, kMost{10}, kMostAtEnd{2};  // limits for one call

class Upload final : public Sink {
 public:
  Upload(const Access& access, Written written, std::shared_ptr<std::atomic<bool>> has_closed)
      : has_closed_(std::move(has_closed)),
        server_(access),
        address_(without_url_secrets(access.address)),
        written_(std::move(written)),
        rows_(written_.run.start_seconds) {
    for (Row& row : written_.rows) {
      close_row();
      rows_.take(std::move(row));
    }
    written_.rows.clear();
  }

  bool is_slow() const override { return true; }
  bool shows_texts() const override { return true; }

  void log(const Record& record) override {
    if (!has_values(record)) return;
    if (!rows_.is_at(record.step)) close_row();
    rows_.add(record);
    idle();
  }

  /// Begins the run, so that the start page has its address.
  void truncate(int64_t, int64_t) override {
    server_.hurry(kMostAtStart);
    send([this] { begin(); });
    server_.hurry(kMost);
    has_told_ = !trouble_.empty();  // by the start page
    has_started_ = true;
  }

  std::string place() const override {
    if (!link_.empty()) return link_;
    return trouble_ + (is_refused_ ? "" : "; the run is shown when the server answers") + "  " + sync_command();
  }

  void idle() override {
    const auto pause = waiting_.empty() ? kBeat : kBetween;
    if (is_refused_ || !pauses_.are_over() || Clock::now() < last_sent_ + pause) return;
    send([this] {
      begin();
      waiting_.empty() ? server_.beat() : send_rows();
    });
  }

  void close() override {
    close_row();
    if (!is_refused_) {
      server_.hurry(kMostAtEnd);
      has_told_ = true;  // the end is told below
      send([this] {
        begin();
        send_rows();
        end();
      });
    }
    const auto lost = static_cast<int64_t>(waiting_.size()) + dropped_;
    if (has_ended_ && lost == 0)
      mark_as_synced();
    else
      log::warning("log.wandb: " + address_ + " did not get " + (lost > 0 ? counted(lost, "row") : "the end") +
                   " of the run: " + trouble_ + "; the same command sends what is missing, or " + sync_command());
    *has_closed_ = true;
  }

 private:
  /// Adds the newest row to those that wait if the server does not have its step. A step that is repeated after a
  /// restart stays on the server as it was.
  void close_row() {
    if (!rows_.has_row() || rows_.row().step <= last_step_) return;
    last_step_ = rows_.row().step;
    if (dropped_ > 0 || waiting_.size() >= kMostWaiting)
      ++dropped_;  // and all that follow: the next attempt goes on after the last row that was sent
    else
      waiting_.emplace_back(last_step_, line_of(rows_.row().values));
  }

  template <class Action>
  void send(const Action& action) {
    try {
      action();
      pauses_.end();
      last_sent_ = Clock::now();
    } catch (const net::Interruption& trouble) {
      pauses_.begin();
      tell(address_ + ": " + trouble.what());
    } catch (const std::exception& refusal) {
      is_refused_ = true;
      const std::string what = refusal.what();
      const bool is_about_key = what.find("answers 401") + 1 > 0 || what.find("answers 403") + 1 > 0;
      tell(what + (is_about_key ? " (check WANDB_API_KEY, or `wandb login --relogin`)" : ""));
    }
  }

  /// Keeps what is wrong, and tells it once after the start page.
  void tell(const std::string& trouble) {
    trouble_ = trouble;
    if (!has_started_ || std::exchange(has_told_, true)) return;
    log::warning("log.wandb: " + trouble + "; training continues, and " +
                 (is_refused_ ? "curves are in the file for `wandb sync`" : "curves are sent when the server answers"));
  }

  void begin() {
    if (!link_.empty()) return;
    const Shown shown = server_.begin(written_.run, !written_.is_new);
    link_ = shown.link;
    offset_ = shown.lines;
    last_step_ = std::max(last_step_, shown.last_step);
    std::erase_if(waiting_, [&](const auto& row) { return row.first <= shown.last_step; });
    if (has_started_) log::warning("log.wandb: the server answers, and the run is shown at " + link_);
  }

  void send_rows() {
    while (!waiting_.empty()) {
      std::vector<std::string> lines;
      size_t bytes = 0;
      for (const auto& [step, line] : waiting_) {
        if (lines.size() == kMostLines || (!lines.empty() && bytes + line.size() > kMostBytes)) break;
        lines.push_back(line);
        bytes += line.size();
      }
      server_.send(offset_, lines, summary());
      offset_ += std::ssize(lines);
      waiting_.erase(waiting_.begin(), waiting_.begin() + std::ssize(lines));
    }
  }

  void end() {
    const auto ending = ending_of(written_.run_folder);
    server_.send(offset_, {}, summary(), ending ? ending->exit_code : 1);
    has_ended_ = true;
  }

  std::string summary() const {
    Values values = rows_.summary();
    values["_wandb"] = R"({"runtime":)" + std::to_string(std::time(nullptr) - written_.run.start_seconds) + "}";
    return line_of(values);
  }

  /// Lets `wandb sync` leave the file out, which would send all rows again.
  void mark_as_synced() const { std::ofstream(written_.file.string() + ".synced"); }

  std::string sync_command() const { return written_.sync_command(!link_.empty() || !written_.is_new); }

  std::shared_ptr<std::atomic<bool>> has_closed_;
  Server server_;
  std::string address_;
  Written written_;
  Rows rows_;
  std::deque<std::pair<int64_t, std::string>> waiting_;  // steps and lines
  int64_t last_step_ = -1;                               // newest step that was sent, or waits
  int64_t offset_ = 0, dropped_ = 0;                     // lines that the server has; rows
  std::string link_, trouble_;
  Pauses pauses_;
  Clock::time_point last_sent_{};
  bool has_started_ = false, has_told_ = false, is_refused_ = false, has_ended_ = false;
};

}  // namespace

std::string Written::sync_command(bool has_part) const {
  return "`wandb sync " + (has_part ? "--id " + run.id + "-whole " : std::string()) + file.parent_path().string() + "`";
}

std::unique_ptr<Sink> upload(const Access& access, Written written, std::shared_ptr<std::atomic<bool>> has_closed) {
  return std::make_unique<Upload>(access, std::move(written), std::move(has_closed));
}

}  // namespace gputrain::monitor::wandb
