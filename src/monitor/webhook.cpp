#include "gputrain/monitor/webhook.hpp"

#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>

#include "background_sink.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/net/client.hpp"

namespace gputrain::monitor {
namespace {

using namespace std::chrono_literals;

class WebhookSink final : public Sink {
 public:
  WebhookSink(std::string url, std::string name) : url_(std::move(url)), name_(std::move(name)) {}

  void log(const Record& record) override {
    const std::string text = name_ + ": " + record.label + (record.label.empty() ? "" : " ") + record.text;
    std::string trouble;
    try {
      const auto reply = client_.ask(
          {.method = "POST",
           .url = url_,
           .headers = {{"Content-Type", "application/json"}},
           .body = nlohmann::json{{"text", text}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
           .limits = {.connect = 3s, .silent = 5s, .total = 10s}});
      if (reply.status >= 300) trouble = "the server answers " + std::to_string(reply.status);
    } catch (const net::Busy& busy) {
      trouble = busy.what();
    } catch (const std::exception&) {
      trouble = "no connection";  // the library's text may repeat the address, which is often secret
    }
    if (!trouble.empty() && !std::exchange(has_told_, true))
      log::warning("log.webhook: a message was not taken: " + trouble);
  }
  void truncate(int64_t, int64_t) override {}
  void close() override {}

 private:
  std::string url_, name_;
  net::Client client_;
  bool has_told_ = false;
};

}  // namespace

std::unique_ptr<Sink> webhook_sink(const std::string& url, const std::string& name) {
  return std::make_unique<BackgroundSink>("webhook", std::make_unique<WebhookSink>(url, name));
}

}  // namespace gputrain::monitor
