#include "top_page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "curve.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/monitor/columns.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/tasks/task.hpp"
#include "gputrain/train/hooks.hpp"

namespace gputrain::app {
namespace {

using Lines = std::vector<std::string>;

struct Shown {
  const char *phase, *letter, *colour;
};
constexpr std::array kPhases{Shown{"load", "L", "31"},          Shown{"copy", "c", "33"},
                             Shown{"forward", "F", "32"},       Shown{"backward", "B", "34"},
                             Shown{"communication", ".", "90"}, Shown{"optimizer", "O", "35"},
                             Shown{"graph", "G", "34"}};

class Page {
 public:
  Page(const nlohmann::json& state, const TopSize& size) : state_(state), values_(state.at("values")), size_(size) {}

  Lines lines() const {
    Lines all = head();
    const size_t left = size_.rows > all.size() ? size_.rows - all.size() : 0;
    const Lines events = newest_events(std::max<size_t>(3, left / 3));
    const Lines ranks = rank_lines(left > events.size() ? left - events.size() : 0);
    all.insert(all.end(), ranks.begin(), ranks.end());
    all.insert(all.end(), events.begin(), events.end());
    if (all.size() > size_.rows) all.resize(size_.rows);
    return all;
  }

 private:
  double value(const char* name) const {
    const auto found = values_.find(name);
    return found != values_.end() && found->is_number() ? found->get<double>() : std::nan("");
  }
  std::string number(const char* name) const {
    const double read = value(name);
    return std::isnan(read) ? "-" : monitor::significant(read);
  }
  std::string coloured(const std::string& text, const char* code) const {
    return monitor::coloured(text, size_.colour ? code : "");
  }
  /// Cuts a text to the width of the page; it has no colours.
  std::string cut(const std::string& text) const { return printable(text).substr(0, size_.columns); }

  Lines head() const {
    Lines lines{coloured(cut(state_.value("name", "") + "  " + state_.value("run_id", "")), "1") + "  " +
                    coloured(state_.value("state", ""), state_.value("state", "") == "training" ? "32" : "33"),
                progress_line(), cut(step_text()), cut(speed_text())};
    if (state_.contains("has_ended")) std::erase(lines, "-");
    if (const std::string cost = cost_text(); !cost.empty()) lines.push_back(cut(cost));
    if (const std::string evaluated = evaluated_text(); !evaluated.empty()) lines.push_back(cut(evaluated));
    for (const auto& alert : state_["alerts"])
      lines.push_back(coloured(cut("alert " + alert.get<std::string>()), "31"));
    lines.push_back(coloured("loss", "1"));
    const auto curve = drawn_curve(curve_of("train/loss"), {size_.columns, std::clamp<size_t>(size_.rows / 4, 2, 10)});
    curve.empty() ? lines.push_back("-") : void(lines.insert(lines.end(), curve.begin(), curve.end()));
    return lines;
  }

  /// Returns a bar with the part that is done, and the time that is left; a run that time ends has no known part.
  std::string progress_line() const {
    const double step = value("steps_total"), planned = value("planned_steps");
    if (!(planned > 0) || std::isnan(step)) return "-";
    const double share = std::min(1.0, step / planned);
    std::string text = fmt::format(" {:.1f} %", std::floor(1000 * share) / 10);
    if (const double left = seconds_left(); left > 0 && step < planned) text += "  left " + monitor::duration(left);
    const size_t room = size_.columns > text.size() ? std::min<size_t>(60, size_.columns - text.size()) : 0;
    return coloured(monitor::bar(share, room, /*unicode=*/true), "32") + text;
  }

  /// Returns what the newest log line said, less the steps since; 0: unknown.
  double seconds_left() const {
    const auto logged = curve_of("time/left_seconds");
    if (logged.empty() || std::isnan(value("time/step_seconds"))) return 0;
    const double since = value("steps_total") - static_cast<double>(logged.back().first);
    return logged.back().second - since * value("time/step_seconds");
  }

  std::string step_text() const {
    const double step = value("steps_total"), planned = value("planned_steps"), epoch = value("epoch");
    std::string text = "step " + (std::isnan(step) ? "-" : grouped(static_cast<int64_t>(step)));
    if (planned > 0) text += "/" + grouped(static_cast<int64_t>(planned));
    const double loss = value("train/loss");
    return text + "  epoch " + (std::isnan(epoch) ? "-" : fmt::format("{:.2f}", epoch)) + "  loss " +
           (std::isnan(loss) ? "-" : monitor::fixed(loss)) + "  lr " + number("train/lr");
  }

  std::string speed_text() const {
    const double tokens = value("train/tokens_per_second"), samples = value("train/samples_per_second");
    std::string text = std::isnan(tokens) ? std::isnan(samples) ? "-" : monitor::compact(samples) + " samples/s"
                                          : monitor::compact(tokens) + " tok/s";
    const auto percent = [&](const char* what, const char* name, int digits) {
      if (const double share = value(name); !std::isnan(share))
        text += fmt::format("  {} {:.{}f} %", what, 100 * share, digits);
    };
    if (!std::isnan(value("time/step_seconds"))) text += "  step " + monitor::duration(value("time/step_seconds"));
    percent("mfu", "train/mfu", 1);
    percent("waits for data", "time/stall_share", 2);
    return text;
  }

  /// Returns "cost 12.40 of 100  about 61.00 for the whole run"; empty: the price is unknown.
  std::string cost_text() const {
    const double total = value("cost_total"), limit = value("cost_limit"), expected = value("cost_expected");
    if (std::isnan(total)) return "";
    std::string text = "cost " + monitor::money(total);
    if (!std::isnan(limit)) text += " of " + monitor::significant(limit);
    return text + (expected > total ? "  about " + monitor::money(expected) + " for the whole run" : "");
  }

  /// Returns the newest value on data.val of the metric that decides which checkpoint is the best, and the best value;
  /// empty before the first evaluation.
  std::string evaluated_text() const {
    std::string name = "val/loss";
    for (const auto& [known, unused] : values_.items()) {
      const tasks::Metric* metric = known.starts_with("val/") ? tasks::find_metric(known) : nullptr;
      if (metric != nullptr && metric->use == tasks::Metric::Use::best) name = known;
    }
    const auto points = curve_of(name);
    const tasks::Metric* metric = tasks::find_metric(name);
    if (points.empty() || metric == nullptr) return "";
    const auto better = [&](const auto& a, const auto& b) {
      return metric->smaller_is_better ? a.second < b.second : a.second > b.second;
    };
    const auto best = std::ranges::min_element(points, better);
    const auto told = [&](const std::pair<int64_t, double>& point) {
      return train::metric_text(*metric, point.second) + " at step " + grouped(point.first);
    };
    return name + " " + told(points.back()) + "  best " + told(*best);
  }

  /// Returns the steps and values of a metric.
  std::vector<std::pair<int64_t, double>> curve_of(const std::string& name) const {
    std::vector<std::pair<int64_t, double>> all;
    for (const auto& point : state_["points"]) {
      const auto found = point["metrics"].find(name);
      if (found != point["metrics"].end() && found->is_number())
        all.emplace_back(point.value("step", int64_t{0}), found->get<double>());
    }
    return all;
  }

  Lines rank_lines(size_t room) const {
    if (room < 3 || !state_.contains("ranks")) return {};
    Lines lines{coloured("rank place             memory    GPU             time by phase", "1")};
    const auto& ranks = state_["ranks"];
    for (size_t rank = 0; rank < ranks.size() && lines.size() + 2 < room; ++rank)
      lines.push_back(rank_line(rank, ranks[rank]));
    if (lines.size() - 1 < ranks.size())
      lines.push_back("... " + counted(static_cast<int64_t>(ranks.size() - lines.size() + 1), "rank") + " more");
    std::string key;
    for (const Shown& one : kPhases) key += coloured(one.letter, one.colour) + " " + one.phase + "  ";
    lines.push_back(key);
    return lines;
  }

  std::string rank_line(size_t rank, const nlohmann::json& of) const {
    const nlohmann::json& metrics = of["metrics"];
    const auto read = [&](const char* name) { return metrics.value(name, std::nan("")); };
    const auto padded = [](std::string text, size_t width) {
      text.resize(std::max(width, text.size()), ' ');
      return text.substr(0, width);
    };
    std::string gpu = "-";
    if (!std::isnan(read("gpu/temperature_celsius")))
      gpu = monitor::significant(read("gpu/temperature_celsius")) + "C " +
            monitor::significant(read("gpu/power_watts")) + "W " +
            monitor::significant(100 * read("gpu/utilization_ratio")) + "%";
    const std::string memory = std::isnan(read("rank/memory_bytes")) ? "-" : monitor::bytes(read("rank/memory_bytes"));
    const std::string text = padded(std::to_string(rank), 5) + padded(printable(of.value("place", "")), 18) +
                             padded(memory, 10) + padded(gpu, 16);
    return text + bar(metrics, size_.columns > text.size() ? size_.columns - text.size() : 0);
  }

  std::string bar(const nlohmann::json& metrics, size_t width) const {
    double all = 0;
    for (const Shown& one : kPhases) all += metrics.value(std::string("phase/") + one.phase, 0.0);
    std::string text;
    double until = 0;
    size_t drawn = 0;
    for (const Shown& one : kPhases) {
      until += metrics.value(std::string("phase/") + one.phase, 0.0);
      const auto end = static_cast<size_t>(all > 0 ? until / all * static_cast<double>(width) : 0);
      std::string part;
      for (; drawn < end; ++drawn) part += one.letter;
      if (!part.empty()) text += coloured(part, one.colour);
    }
    return text;
  }

  Lines newest_events(size_t room) const {
    const auto& events = state_["events"];
    if (events.empty() || room < 2) return {};
    Lines lines{coloured("events", "1")};
    const size_t count = std::min(events.size(), room - 1);
    for (size_t i = events.size() - count; i < events.size(); ++i)
      lines.push_back(cut("step " + grouped(events[i].value("step", int64_t{0})) + "  " + events[i].value("text", "")));
    return lines;
  }

  const nlohmann::json& state_;
  const nlohmann::json& values_;
  TopSize size_;
};

}  // namespace

Lines top_page(const nlohmann::json& state, const TopSize& size) { return Page(state, size).lines(); }

}  // namespace gputrain::app
