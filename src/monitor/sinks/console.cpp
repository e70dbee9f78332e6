#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor {
namespace {

class ConsoleSink final : public Sink {
 public:
  ConsoleSink(const config::NoOptions&, const SinkRequest& request) : console_(request.console) {}

  void log(const Record& record) override {
    if (!record.label.empty()) console_.show(record.label, record.text);
  }
  void truncate(int64_t, int64_t) override {}
  void close() override { console_.clear_status(); }
  void status(std::string_view text) override { console_.status(text); }

 private:
  Console& console_;
};

const config::Registered<ConsoleSink, config::NoOptions> registered_console{sinks(), "console", "lines on stdout"};

}  // namespace
}  // namespace gputrain::monitor
