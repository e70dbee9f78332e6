#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor {
namespace {

class ConsoleSink final : public Sink {
 public:
  ConsoleSink(const config::NoOptions&, const SinkRequest& request) : console_(request.console) {}

  void log(const Record& record) override {
    if (record.label.empty()) return;
    record.columns.empty() ? console_.show(record.label, record.text) : console_.show(record.label, record.columns);
  }
  void truncate(int64_t, int64_t) override {}
  void close() override { console_.clear_status(); }
  void status(const LiveLine& line) override { console_.status(line); }

 private:
  Console& console_;
};

const config::Registered<ConsoleSink, config::NoOptions> registered_console{sinks(), "console", "lines on stdout"};

}  // namespace
}  // namespace gputrain::monitor
