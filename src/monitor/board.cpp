#include "gputrain/monitor/board.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "append_line.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/device/phase_clock.hpp"
#include "prometheus_text.hpp"

namespace gputrain::monitor {
namespace {

constexpr size_t kMostPoints = 4000, kMostEvents = 200, kMostTexts = 200;
constexpr size_t kCompared = 20;                     // number of training lines, including the newest
constexpr std::string_view kPhasePrefix = "phase/";  // prefix in a rank's metrics: "phase/load", in seconds

using Labels = PrometheusText::Labels;

nlohmann::ordered_json finite(const Metrics& metrics) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : metrics)
    object[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  return object;
}

/// Returns labels for "node2:1": host and GPU.
Labels labels_of(size_t rank, const std::string& place) {
  return {{"rank", std::to_string(rank)}, {"host", place.substr(0, place.rfind(':'))}};
}

WrittenText text_of(const nlohmann::json& line) {
  return {.name = json_value(line, "name", std::string()),
          .prompt = json_value(line, "prompt", std::string()),
          .text = json_value(line, "text", std::string()),
          .is_answer = json_value(line, "is_answer", false)};
}

class BoardSink final : public Sink {
 public:
  explicit BoardSink(Board& board) : board_(board) {}
  bool shows_texts() const override { return true; }
  void log(const Record& record) override { board_.add(record); }
  void truncate(int64_t, int64_t) override {}
  void close() override {}

 private:
  Board& board_;
};

}  // namespace

std::unique_ptr<Sink> board_sink(Board& board) { return std::make_unique<BoardSink>(board); }

void Board::begin(Facts facts) {
  const std::lock_guard lock(mutex_);
  facts_ = std::move(facts);
  ranks_.resize(facts_.places.size());
  values_["attempt"] = static_cast<double>(facts_.attempt);
  values_["planned_steps"] = static_cast<double>(facts_.planned_steps);
  values_["paused"] = 0;
}

void Board::note_step(int64_t step, double epoch, int64_t samples, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  values_["steps_total"] = static_cast<double>(step);
  values_["samples_total"] = static_cast<double>(samples);
  if (tokens > 0) values_["tokens_total"] = static_cast<double>(tokens);
  values_["epoch"] = epoch;
  values_["last_step_timestamp_seconds"] = seconds_since_epoch();
  last_step_ = std::chrono::steady_clock::now();
}

void Board::add(const Record& record) {
  const std::lock_guard lock(mutex_);
  const double now = seconds_since_epoch();
  for (const auto& [name, value] : record.metrics) values_[name] = value;
  if (record.kind == "event") {
    events_.push_back({now, record.step, record.label + (record.label.empty() ? "" : " ") + record.text});
    if (events_.size() > kMostEvents) events_.pop_front();
    return;
  }
  for (const WrittenText& text : record.texts) add_text(record.step, text);
  if (!record.metrics.empty()) add_point(record.step, now, record.kind, record.metrics);
}

void Board::add_point(int64_t step, double time, const std::string& kind, const Metrics& metrics) {
  points_.push_back({++newest_, step, time, kind, metrics});
  if (points_.size() < kMostPoints) return;
  // Every other training point of the older half is removed; evaluations stay.
  size_t kept = 0, training = 0;
  const size_t half = points_.size() / 2;
  for (size_t i = 0; i < points_.size(); ++i) {
    const bool goes = i < half && points_[i].kind == "train" && ++training % 2 == 0;
    if (goes) continue;
    if (kept != i) points_[kept] = std::move(points_[i]);
    ++kept;
  }
  points_.resize(kept);
}

void Board::add_text(int64_t step, const WrittenText& text) {
  texts_.push_back({++newest_, step, text});
  if (texts_.size() > kMostTexts) texts_.pop_front();
}

void Board::read_history(const std::filesystem::path& lines) {
  const std::lock_guard lock(mutex_);
  std::ifstream file(lines);
  for (std::string line; std::getline(file, line);) {
    const auto object = parse_json(line);
    if (!object.is_object()) continue;
    const auto step = json_value(object, "step", int64_t{0});
    const double time = json_value(object, "time", 0.0);
    const auto kind = json_value(object, "kind", std::string());
    if (kind == "event") {
      events_.push_back({time, step, json_value(object, "message", "")});
      if (events_.size() > kMostEvents) events_.pop_front();
      continue;
    }
    if (object.contains("prompt")) {
      add_text(step, text_of(object));
      continue;
    }
    Metrics values;
    for (const auto& [name, value] : object.items())
      if (name.find('/') != std::string::npos && value.is_number()) values[name] = value.get<double>();
    add_point(step, time, kind, values);
  }
  last_of_history_ = newest_;
}

void Board::set(const std::string& name, double value) {
  const std::lock_guard lock(mutex_);
  values_[name] = value;
}

void Board::set_rank(int rank, const Metrics& metrics) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, value] : metrics) ranks_.at(static_cast<size_t>(rank))[name] = value;
}

void Board::set_state(const std::string& state) {
  const std::lock_guard lock(mutex_);
  if (state_ == "paused" && last_step_) last_step_ = std::chrono::steady_clock::now();  // a pause is no long step
  state_ = state;
  values_["paused"] = state == "paused" ? 1 : 0;
}

void Board::set_alerts(std::vector<std::string> alerts) {
  const std::lock_guard lock(mutex_);
  alerts_ = std::move(alerts);
}

std::string Board::prometheus() const {
  const std::lock_guard lock(mutex_);
  PrometheusText page({{"run", facts_.run_id}});
  for (const auto& [name, value] : values_) page.add(name, value);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Labels labels = labels_of(rank, facts_.places[rank]);
    for (const auto& [name, value] : ranks_[rank]) {
      if (!name.starts_with(kPhasePrefix)) {
        page.add(name, value, labels);
        continue;
      }
      Labels more = labels;
      more.emplace_back("phase", name.substr(kPhasePrefix.size()));
      page.add("rank/phase_seconds_total", value, more);
    }
  }
  return page.text();
}

nlohmann::ordered_json Board::json(int64_t after) const {
  const std::lock_guard lock(mutex_);
  nlohmann::ordered_json state{
      {"run_id", facts_.run_id},       {"name", facts_.name},       {"folder", facts_.folder}, {"state", state_},
      {"time", seconds_since_epoch()}, {"values", finite(values_)}, {"alerts", alerts_},       {"newest", newest_}};
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    state["ranks"].push_back({{"place", facts_.places[rank]}, {"metrics", finite(ranks_[rank])}});
  state["points"] = nlohmann::ordered_json::array();
  for (const Point& point : points_) {
    if (point.number <= after) continue;
    state["points"].push_back({{"number", point.number},
                               {"step", point.step},
                               {"time", point.time},
                               {"kind", point.kind},
                               {"metrics", finite(point.metrics)}});
  }
  state["texts"] = nlohmann::ordered_json::array();
  for (const Text& one : texts_)
    if (one.number > after)
      state["texts"].push_back({{"step", one.step},
                                {"name", one.written.name},
                                {"prompt", one.written.prompt},
                                {"text", one.written.text},
                                {"is_answer", one.written.is_answer}});
  state["events"] = nlohmann::ordered_json::array();
  for (const Event& event : events_)
    state["events"].push_back({{"time", event.time}, {"step", event.step}, {"text", event.text}});
  return state;
}

/// Computes measurements that follow from others: the duration of the present step, the highest utilization of a GPU,
/// and the newest training line relative to the median of those before.
Metrics Board::derived() const {
  Metrics metrics;
  if (state_ == "training" && last_step_)
    metrics["since_step_seconds"] =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - *last_step_).count();
  const auto compare = [&](const char* name, const char* as) {
    std::vector<double> before;
    int64_t newest_number = 0;
    for (auto point = points_.rbegin(); point != points_.rend() && before.size() <= kCompared; ++point) {
      const auto found = point->metrics.find(name);
      if (found == point->metrics.end() || !std::isfinite(found->second)) continue;
      newest_number = std::max(newest_number, point->number);
      before.push_back(found->second);
    }
    if (before.size() <= kCompared / 2 || newest_number <= last_of_history_) return;
    const double newest = before.front();
    const auto middle = before.begin() + 1 + std::ssize(before) / 2;
    std::nth_element(before.begin() + 1, middle, before.end());
    if (*middle > 0) metrics[as] = newest / *middle;
  };
  for (const Metrics& rank : ranks_) {
    const auto found = rank.find("gpu/utilization_ratio");
    if (found == rank.end()) continue;
    const auto most = metrics.try_emplace("gpu/most_utilization_ratio", found->second).first;
    most->second = std::max(most->second, found->second);
  }
  compare("train/loss", "train/loss_spike");
  compare("train/tokens_per_second", "train/rate_share");
  compare("train/samples_per_second", "train/rate_share");
  return metrics;
}

std::map<std::string, Board::Range> Board::values() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, Range> all;
  for (const Metrics& part : {values_, derived()})
    for (const auto& [name, value] : part) all[name] = {value, value};
  for (const Metrics& rank : ranks_) {
    for (const auto& [name, value] : rank) {
      const auto [entry, is_new] = all.try_emplace(name, Range{value, value});
      if (is_new) continue;
      entry->second.least = std::min(entry->second.least, value);
      entry->second.most = std::max(entry->second.most, value);
    }
  }
  return all;
}

}  // namespace gputrain::monitor
