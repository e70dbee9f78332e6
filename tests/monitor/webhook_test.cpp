#include "gputrain/monitor/webhook.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/net/server.hpp"

namespace gputrain::monitor {
namespace {

/// What is said of a webhook that answers like this.
std::string said_of(const net::Response& answer) {
  const net::Server server(net::listen_on("127.0.0.1", 0), [&](const net::Request&) { return answer; });
  testing::internal::CaptureStderr();
  const auto sink = webhook_sink("http://127.0.0.1:" + std::to_string(server.port()) + "/hush", "job");
  sink->log({.kind = "event", .text = "hello"});
  sink->close();
  return testing::internal::GetCapturedStderr();
}

TEST(Webhook, SaysWhatTheServerAnswered) {
  for (const int status : {404, 429, 503}) {
    const std::string said = said_of({.status = status});
    EXPECT_THAT(said, testing::HasSubstr("a message was not taken: the server answers " + std::to_string(status)));
    EXPECT_THAT(said, testing::Not(testing::HasSubstr("hush")));
  }
  EXPECT_EQ(said_of({.status = 200}), "");
}

}  // namespace
}  // namespace gputrain::monitor
