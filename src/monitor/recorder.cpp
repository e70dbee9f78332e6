#include "gputrain/monitor/recorder.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "background_sink.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/monitor/tracked_settings.hpp"

namespace gputrain::monitor {

SinkCatalog& sinks() {
  static SinkCatalog catalog("sink");
  return catalog;
}

Sink::~Sink() = default;

namespace {

std::vector<config::Choice> with_defaults(const std::vector<std::string>& names) {
  std::vector<config::Choice> chosen;
  for (const std::string& name : names) chosen.push_back(sinks().with_defaults(name));
  return chosen;
}

bool wants(const Sink& sink, const Record& record) {
  return (record.texts.empty() || sink.shows_texts()) && (record.pictures.empty() || sink.shows_pictures());
}

}  // namespace

Recorder::Recorder(const std::vector<config::Choice>& chosen, const SinkRequest& request) {
  SinkRequest safe = request;
  safe.settings = masked(request.settings);
  for (const config::Choice& choice : chosen) {
    auto sink = sinks().make(choice, safe);
    if (sink->is_slow()) sink = std::make_unique<BackgroundSink>(choice.name, std::move(sink));
    sinks_.push_back({choice.name, std::move(sink)});
  }
}

Recorder::Recorder(const std::vector<std::string>& names, const SinkRequest& request)
    : Recorder(with_defaults(names), request) {}

Recorder::~Recorder() {
  if (has_begun_) each([](Sink& sink) { sink.close(); });
}

void Recorder::add(std::string name, std::unique_ptr<Sink> sink) {
  const std::lock_guard lock(mutex_);
  sinks_.push_back({std::move(name), std::move(sink)});
}

void Recorder::log(const Record& record) {
  const std::lock_guard lock(mutex_);
  has_begun_ = true;
  if (!record.label.empty()) log::info(Console::labelled(record.label) + record.text);
  each([&](Sink& sink) {
    if (wants(sink, record)) sink.log(record);
  });
}

bool Recorder::shows_pictures() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(sinks_, [](const Named& named) { return named.sink->shows_pictures(); });
}

void Recorder::status(const LiveLine& line) {
  const std::lock_guard lock(mutex_);
  each([&](Sink& sink) { sink.status(line); });
}

void Recorder::truncate(int64_t step, int64_t evaluated_step) {
  const std::lock_guard lock(mutex_);
  has_begun_ = true;
  for (const Named& each : sinks_) each.sink->truncate(step, evaluated_step);
}

std::vector<std::pair<std::string, std::string>> Recorder::places() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, std::string>> places;
  for (const Named& each : sinks_)
    if (std::string place = each.sink->place(); !place.empty()) places.emplace_back(each.name, std::move(place));
  return places;
}

void Recorder::each(const std::function<void(Sink&)>& call) {
  std::erase_if(sinks_, [&](const Named& named) {
    try {
      call(*named.sink);
      return false;
    } catch (const std::exception& failure) {
      log::warning("log.sinks: " + named.name + " fails, and training goes on without it: " + failure.what());
      return true;
    }
  });
}

}  // namespace gputrain::monitor
