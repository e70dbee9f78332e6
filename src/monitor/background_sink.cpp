#include "background_sink.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/device/thread.hpp"

namespace gputrain::monitor {
namespace {

size_t picture_bytes(const Record& record) {
  size_t bytes = 0;
  for (const Picture& picture : record.pictures) bytes += picture.png->size();
  return bytes;
}

}  // namespace

struct BackgroundSink::Shared {
  std::unique_ptr<Sink> sink;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Record> waiting;
  std::exception_ptr failure;
  bool may_rest = false, is_ending = false, is_done = false;
  std::atomic<bool> is_abandoned = false;
  size_t dropped = 0, waiting_bytes = 0;  // bytes: of pictures

  void run();
  bool take(Record& record);
};

/// Waits for the next record; returns false at the end.
bool BackgroundSink::Shared::take(Record& record) {
  constexpr std::chrono::seconds kRest{5};
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, kRest, [&] { return !waiting.empty() || is_ending; })) {
    if (!may_rest) continue;
    lock.unlock();
    sink->idle();
    lock.lock();
  }
  if (waiting.empty() || is_abandoned) return false;
  record = std::move(waiting.front());
  waiting.pop_front();
  waiting_bytes -= picture_bytes(record);
  return true;
}

void BackgroundSink::Shared::run() {
  try {
    for (Record record; take(record);) sink->log(record);
    if (!is_abandoned) sink->close();
  } catch (...) {
    const std::lock_guard lock(mutex);
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex);
  is_done = true;
  changed.notify_all();
}

BackgroundSink::BackgroundSink(std::string name, std::unique_ptr<Sink> sink)
    : BackgroundSink(std::move(name), std::move(sink), Options{}) {}

BackgroundSink::BackgroundSink(std::string name, std::unique_ptr<Sink> sink, const Options& options)
    : name_(std::move(name)),
      options_(options),
      shows_texts_(sink->shows_texts()),
      shows_pictures_(sink->shows_pictures()),
      shared_(std::make_shared<Shared>()) {
  shared_->sink = std::move(sink);
  device::start_thread("tracker", [shared = shared_] {
    shared->run();
  }).detach();  // never joined: it may hang in a write
}

BackgroundSink::~BackgroundSink() {
  const std::lock_guard lock(shared_->mutex);
  shared_->is_abandoned = shared_->is_ending = true;
  shared_->changed.notify_all();
}

void BackgroundSink::log(const Record& record) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->failure) std::rethrow_exception(std::exchange(shared_->failure, nullptr));
  const size_t bytes = picture_bytes(record);
  const bool is_too_large = bytes > 0 && shared_->waiting_bytes + bytes > options_.picture_room;
  if (shared_->waiting.size() >= options_.room || is_too_large) {
    if (shared_->dropped++ == 0)
      log::warning("log.sinks: " + name_ + " is slow: " + counted(std::ssize(shared_->waiting), "record") +
                   " wait for it, and it does not get those that follow until it has caught up");
    return;
  }
  shared_->waiting.push_back(record);
  shared_->waiting_bytes += bytes;
  shared_->changed.notify_all();
}

void BackgroundSink::truncate(int64_t step, int64_t evaluated_step) {
  shared_->sink->truncate(step, evaluated_step);
  place_ = shared_->sink->place();
  const std::lock_guard lock(shared_->mutex);
  shared_->may_rest = true;
}

void BackgroundSink::close() {
  std::unique_lock lock(shared_->mutex);
  shared_->is_ending = true;
  shared_->changed.notify_all();
  const bool is_done = shared_->changed.wait_for(lock, options_.patience, [&] { return shared_->is_done; });
  const auto lost = static_cast<int64_t>(shared_->dropped + (is_done ? 0 : shared_->waiting.size()));
  shared_->is_abandoned = !is_done;
  if (!is_done || lost > 0)
    log::warning("log.sinks: " + name_ + (is_done ? " did not get " : " does not answer, and may lack ") +
                 (lost > 0 ? counted(lost, "record") : "the last ones"));
  if (shared_->failure) std::rethrow_exception(std::exchange(shared_->failure, nullptr));
}

}  // namespace gputrain::monitor
