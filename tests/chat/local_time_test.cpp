#include "gputrain/chat/local_time.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/chat/template.hpp"

namespace gputrain::chat {
namespace {

std::string written(const std::string& format) {
  return Template::parse("{{ strftime_now('" + format + "') }}", "test").render(nlohmann::json::object()).text;
}

TEST(LocalTime, IsReadBack) {
  const auto time = local_time_from("2024-02-29T23:59:58");
  ASSERT_TRUE(time);
  EXPECT_EQ(text_of(*time), "2024-02-29T23:59:58");
  for (const char* wrong : {"", "2024-02-29", "2024-13-01T00:00:00", "2024-02-29T23:59:58Z"})
    EXPECT_FALSE(local_time_from(wrong)) << wrong;
}

TEST(LocalTime, OfARunIsWhatTemplatesWrite) {
  EXPECT_EQ(written("%Y-%m-%d"), text_of(local_time()).substr(0, 10));
  const std::tm now = local_time();
  set_local_time(*local_time_from("2024-02-29T23:59:58"));
  EXPECT_EQ(written("%A, %d %b %Y"), "Thursday, 29 Feb 2024");
  EXPECT_EQ(text_of(local_time()), "2024-02-29T23:59:58");
  set_local_time(now);  // other tests are written by it
}

}  // namespace
}  // namespace gputrain::chat
