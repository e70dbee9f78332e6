#include "gputrain/core/log.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <cstdio>

#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/core/secrets.hpp"
#include "gputrain/core/taken_warnings.hpp"
#include "gputrain/core/wrap.hpp"

namespace gputrain::log {
namespace {

/// Warnings and errors for users: only the kind and the sentence, without time stamp or thread.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::atomic<bool> enabled = true;
  void (*before)() = nullptr;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (!enabled || message.level < spdlog::level::warn) return;
    if (before != nullptr) before();
    const char* kind = message.level == spdlog::level::warn ? "warning: " : "error: ";
    const std::string text = kind + std::string(message.payload.data(), message.payload.size());
    std::fprintf(stderr, "%s\n", wrapped_for_stderr(text).c_str());
  }
  void flush_() override { std::fflush(stderr); }
};

std::shared_ptr<StderrSink> stderr_sink() {
  static const auto sink = std::make_shared<StderrSink>();
  return sink;
}

spdlog::logger& logger() {
  static const auto instance = std::make_shared<spdlog::logger>("gputrain", stderr_sink());
  return *instance;
}

/// Writes a message. It may name files, whose names may hold any bytes, and addresses with a password.
void write(spdlog::level::level_enum level, std::string_view message) {
  const std::string shown = without_url_secrets(printable(message, "\n\t"));
  logger().log(level, spdlog::string_view_t(shown.data(), shown.size()));
}

thread_local TakenWarnings* taken_warnings = nullptr;

}  // namespace

TakenWarnings::TakenWarnings() { taken_warnings = this; }

TakenWarnings::~TakenWarnings() {
  for (const std::string& left : take()) write(spdlog::level::warn, left);
}

std::vector<std::string> TakenWarnings::take() {
  taken_warnings = nullptr;
  const std::lock_guard lock(mutex_);
  return std::exchange(warnings_, {});
}

void TakenWarnings::add(std::string_view warning) {
  const std::lock_guard lock(mutex_);
  warnings_.emplace_back(warning);
}

TakenWarnings* TakenWarnings::current() { return taken_warnings; }

WorkerWarnings::WorkerWarnings(TakenWarnings* of_other) { taken_warnings = of_other; }
WorkerWarnings::~WorkerWarnings() { taken_warnings = nullptr; }

void info(std::string_view message) { write(spdlog::level::info, message); }
void warning(std::string_view message) {
  if (taken_warnings != nullptr) {
    taken_warnings->add(message);
  } else {
    write(spdlog::level::warn, message);
  }
}
void error(std::string_view message) { write(spdlog::level::err, message); }

void open_file(const std::filesystem::path& path) {
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string());
    file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    logger().sinks() = {stderr_sink(), file};
    logger().flush_on(spdlog::level::info);
  } catch (const spdlog::spdlog_ex& failure) {
    throw Error(ExitCode::environment, {.what = std::string("cannot write the log: ") + failure.what(),
                                        .where = path.string(),
                                        .hint = "check that the folder is writable and the disk is not full"});
  }
}

bool has_file() { return logger().sinks().size() > 1; }

void set_stderr_enabled(bool enabled) { stderr_sink()->enabled = enabled; }

void own_warning(std::string_view message) {
  const bool was_enabled = stderr_sink()->enabled.exchange(true);
  warning(message);
  stderr_sink()->enabled = was_enabled;
}

void set_before_stderr(void (*callback)()) { stderr_sink()->before = callback; }

}  // namespace gputrain::log
