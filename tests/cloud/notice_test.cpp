#include "gputrain/cloud/notice.hpp"

#include <cmath>
#include <cstdlib>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/config/load.hpp"
#include "gputrain/core/error.hpp"
#include "support/fake_cloud.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::cloud {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FakeCloud;
using ::testing::Ge;
using ::testing::HasSubstr;
using testing::HttpAnswer;
using ::testing::IsEmpty;
using ::testing::Le;

/// Polls one fake cloud with almost no pauses.
NoticeWatcher::Options asking(const FakeCloud& fake, double answer_seconds = 20) {
  return {.interval_seconds = 0.002,
          .answer_seconds = answer_seconds,
          .sources = read_metadata_sources([&](const char*) { return fake.url(); })};
}

/// Waits until another thread makes the condition true; false after a time that no test needs.
template <class Condition>
bool eventually(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + gputrain::testing::patience(std::chrono::seconds(20));
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Waits for this many complete polling rounds; rounds in progress do not count.
bool rounds_pass(const NoticeWatcher& watcher, int64_t rounds) {
  const int64_t enough = watcher.counts().polls + rounds + 1;
  return eventually([&] { return watcher.counts().polls >= enough; });
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class CloudNotice : public ::testing::TestWithParam<std::string> {
 protected:
  FakeCloud fake{GetParam()};
  /// The longest notice that all clouds accept; Google's always has this length.
  static constexpr double kNotice = 30;
};
INSTANTIATE_TEST_SUITE_P(Clouds, CloudNotice, ::testing::ValuesIn(testing::kClouds),
                         [](const auto& named) { return named.param; });

TEST_P(CloudNotice, StaysQuietWithoutAnnouncement) {
  NoticeWatcher watcher(asking(fake));
  ASSERT_TRUE(watcher.wait_until_known(20));
  EXPECT_THAT(watcher.description(), HasSubstr("metadata polled every 2 ms"));
  ASSERT_TRUE(rounds_pass(watcher, 5));
  EXPECT_FALSE(watcher.notice());
  EXPECT_EQ(watcher.counts().failed, 0);
  EXPECT_EQ(watcher.counts().junk, 0);
  EXPECT_THAT(watcher.take_remarks(), IsEmpty());
}

TEST_P(CloudNotice, ReportsTimeLeft) {
  NoticeWatcher watcher(asking(fake));
  ASSERT_TRUE(rounds_pass(watcher, 1));
  fake.announce(testing::announcement(GetParam(), kNotice));
  ASSERT_TRUE(eventually([&] { return watcher.notice().has_value(); }));
  const Notice notice = *watcher.notice();
  EXPECT_THAT(notice.seconds_left(), AllOf(Ge(kNotice - 10), Le(kNotice)));
  EXPECT_TRUE(notice.is_urgent(0));
  EXPECT_THAT(watcher.description(), HasSubstr(notice.cloud));
  EXPECT_THAT(notice.text(), HasSubstr(notice.cloud + " announces " + notice.event + " in "));
}

TEST_P(CloudNotice, IsWithdrawnWhenTheCloudTakesItBack) {
  fake.announce(testing::announcement(GetParam(), kNotice));
  NoticeWatcher watcher(asking(fake));
  ASSERT_TRUE(eventually([&] { return watcher.notice().has_value(); }));
  fake.announce({});
  ASSERT_TRUE(eventually([&] { return !watcher.notice().has_value(); }));
  EXPECT_THAT(watcher.take_remarks(), ElementsAre(HasSubstr("taken its notice back")));
}

TEST_P(CloudNotice, KeepsDeadlineWhenRepeated) {
  fake.announce(testing::announcement(GetParam(), kNotice));
  NoticeWatcher watcher(asking(fake));
  ASSERT_TRUE(eventually([&] { return watcher.notice().has_value(); }));
  const auto deadline = watcher.notice()->deadline;
  ASSERT_TRUE(rounds_pass(watcher, 3));
  EXPECT_EQ(watcher.notice()->deadline, deadline);
}

TEST_P(CloudNotice, IgnoresJunkAndSaysSoOnce) {
  NoticeWatcher watcher(asking(fake));
  for (const std::string& junk :
       {std::string("\x1b[2J\n\xff\0soon", 11), std::string("soon"), std::string(), std::string("{}"),
        std::string("[1]"), std::string(60000, '['), std::string(R"({"action": "terminate", "time": "tomorrow"})"),
        std::string(R"({"action": 7, "time": "2017-09-18T08:22:00Z"})"), std::string(R"({"Events": {}})"),
        std::string(R"({"Events": [{"EventType": "Preempt", "EventStatus": "Scheduled", "NotBefore": "soon"}]})"),
        std::string("2026-02-30T00:00:00Z"), std::string("1792848000")}) {
    fake.misbehave(testing::http(200, junk));
    const int64_t before = watcher.counts().junk;
    ASSERT_TRUE(eventually([&] { return watcher.counts().junk > before + 2; })) << junk;
    EXPECT_FALSE(watcher.notice()) << junk;
  }
  fake.misbehave({});
  fake.announce(testing::announcement(GetParam(), kNotice));
  EXPECT_TRUE(eventually([&] { return watcher.notice().has_value(); }));
  const size_t questions = GetParam() == "google" ? 2 : 1;
  const auto remarks = watcher.take_remarks();
  EXPECT_EQ(remarks.size(), questions);
  EXPECT_THAT(remarks.front(), HasSubstr("makes no sense and is taken as no notice: \"?[2J ??soon\""));
}

TEST_P(CloudNotice, SurvivesBrokenAnswers) {
  FakeCloud elsewhere(GetParam());
  elsewhere.announce(testing::announcement(GetParam(), kNotice));
  const std::string there = "Location: http://127.0.0.1:" + std::to_string(elsewhere.port()) + "/";
  NoticeWatcher watcher(asking(fake));
  for (const HttpAnswer& trouble : {testing::reset(), HttpAnswer{}, HttpAnswer{.bytes = "SSH-2.0-OpenSSH_9.6\r\n"},
                                    testing::http(200, std::string(10'000'000, 'x')), testing::http(302, "", there),
                                    testing::http(500, "sorry"), testing::http(429, ""), testing::http(403, ""),
                                    HttpAnswer{.bytes = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"},
                                    HttpAnswer{.bytes = "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"}}) {
    fake.misbehave(trouble);
    const int64_t before = watcher.counts().failed;
    ASSERT_TRUE(eventually([&] { return watcher.counts().failed > before + 3; })) << trouble.bytes.substr(0, 60);
    EXPECT_FALSE(watcher.notice());
  }
  EXPECT_EQ(watcher.counts().junk, 0);
  EXPECT_THAT(watcher.take_remarks(), ElementsAre(HasSubstr("training goes on")));
  EXPECT_THAT(elsewhere.requests(), IsEmpty());
  fake.misbehave({});
  fake.announce(testing::announcement(GetParam(), kNotice));
  EXPECT_TRUE(eventually([&] { return watcher.notice().has_value(); }));
}

TEST_P(CloudNotice, RetriesAfterLateAnswers) {
  NoticeWatcher watcher(asking(fake, 0.1));
  ASSERT_TRUE(watcher.wait_until_known(20));
  for (const HttpAnswer& late : {testing::silence(), testing::dripping()}) {
    fake.misbehave(late);
    const int64_t before = watcher.counts().failed;
    ASSERT_TRUE(eventually([&] { return watcher.counts().failed > before + 2; }));
    EXPECT_FALSE(watcher.notice());
  }
  fake.misbehave({});
  fake.announce(testing::announcement(GetParam(), kNotice));
  EXPECT_TRUE(eventually([&] { return watcher.notice().has_value(); }));
}

TEST_P(CloudNotice, RemainsWhenServiceFallsSilent) {
  fake.announce(testing::announcement(GetParam(), kNotice));
  NoticeWatcher watcher(asking(fake));
  ASSERT_TRUE(eventually([&] { return watcher.notice().has_value(); }));
  fake.misbehave(testing::reset());
  const int64_t before = watcher.counts().failed;
  ASSERT_TRUE(eventually([&] { return watcher.counts().failed > before + 2; }));
  EXPECT_TRUE(watcher.notice());
  fake.misbehave(testing::http(200, "junk!"));
  ASSERT_TRUE(eventually([&] { return watcher.counts().junk > 2; }));
  EXPECT_TRUE(watcher.notice());
}

TEST_P(CloudNotice, DoesNotDelayTheEndWhenServiceHangs) {
  fake.misbehave(testing::silence());
  std::optional<NoticeWatcher> watcher(asking(fake, 600));
  const size_t probe_and_poll = 2;
  ASSERT_TRUE(fake.wait_for_requests(probe_and_poll));
  const auto start = std::chrono::steady_clock::now();
  watcher.reset();
  EXPECT_LT(seconds_since(start), 1);
}

TEST_P(CloudNotice, FindsSlowServiceLater) {
  fake.misbehave_when_probed(testing::silence());
  NoticeWatcher watcher(asking(fake, 0.3));
  EXPECT_THAT(watcher.description(), HasSubstr("looking for"));
  ASSERT_TRUE(fake.wait_for_requests(2));
  fake.misbehave_when_probed({});
  ASSERT_TRUE(watcher.wait_until_known(20));
  EXPECT_THAT(watcher.description(), HasSubstr("polled"));
}

TEST_P(CloudNotice, NeedsDocumentedFirstAnswer) {
  for (const HttpAnswer& answer : {testing::http(200, ""), testing::http(404, "no"), testing::http(200, "two words"),
                                   testing::http(200, "line\r\nInjected: header"), testing::http(301, "x")}) {
    FakeCloud other(GetParam());
    other.misbehave_when_probed(answer);
    NoticeWatcher watcher(asking(other));
    ASSERT_TRUE(watcher.wait_until_known(20)) << answer.bytes;
    EXPECT_EQ(watcher.description(), "no cloud metadata service");
    EXPECT_EQ(other.requests().size(), 1U);
  }
}

TEST_P(CloudNotice, IsFetchedWithoutProxy) {
  ::setenv("http_proxy", "http://127.0.0.1:9", 1);
  ::setenv("all_proxy", "http://127.0.0.1:9", 1);
  NoticeWatcher watcher(asking(fake));
  ASSERT_TRUE(watcher.wait_until_known(20));
  EXPECT_THAT(watcher.description(), HasSubstr("polled"));
  ::unsetenv("http_proxy");
  ::unsetenv("all_proxy");
}

TEST(NoticeWatcher, EndsSearchWhereNothingAnswers) {
  const testing::LoopbackSocket nobody;  // bound, not listening: the kernel refuses connections
  std::vector<MetadataSource> sources;
  for (const std::string& cloud : testing::kClouds) sources.push_back({cloud, "127.0.0.1", nobody.port()});
  NoticeWatcher watcher({.interval_seconds = 600, .answer_seconds = 600, .sources = sources});
  ASSERT_TRUE(watcher.wait_until_known(20));
  EXPECT_EQ(watcher.description(), "no cloud metadata service");
  EXPECT_FALSE(watcher.notice());
  EXPECT_THAT(watcher.take_remarks(), IsEmpty());
}

TEST(NoticeWatcher, StopsAtOnceWhileConnectingOrWaiting) {
  const testing::LoopbackSocket full;  // its queue holds one connection; the kernel drops later ones
  ASSERT_EQ(::listen(full.get(), 0), 0);
  const testing::LoopbackSocket first;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(full.port());
  ASSERT_EQ(::connect(first.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  FakeCloud fake("aws");
  auto pausing = asking(fake);
  pausing.interval_seconds = 600;
  std::optional<NoticeWatcher> connecting(
      std::in_place, NoticeWatcher::Options{.answer_seconds = 600, .sources = {{"aws", "127.0.0.1", full.port()}}});
  std::optional<NoticeWatcher> waiting(pausing);
  ASSERT_TRUE(eventually([&] { return waiting->counts().polls == 1; }));
  const auto start = std::chrono::steady_clock::now();
  connecting.reset();
  waiting.reset();
  EXPECT_LT(seconds_since(start), 1);
}

TEST(NoticeWatcher, RenewsExpiredToken) {
  for (const char* cloud : {"aws", "alibaba"}) {
    FakeCloud fake(cloud);
    NoticeWatcher watcher(asking(fake));
    ASSERT_TRUE(rounds_pass(watcher, 1));
    fake.change_token("U0VDT05E");
    fake.announce(testing::announcement(cloud, 60));
    EXPECT_TRUE(eventually([&] { return watcher.notice().has_value(); }));
    EXPECT_EQ(watcher.counts().failed, 0);
  }
}

TEST(NoticeWatcher, CountsEveryRefusalOfItsTokenAsFailure) {
  FakeCloud fake("aws");
  fake.misbehave(testing::http(401, ""));
  NoticeWatcher watcher(asking(fake));
  ASSERT_TRUE(rounds_pass(watcher, 4));
  EXPECT_GE(watcher.counts().failed, 4);
  EXPECT_THAT(watcher.take_remarks(), ElementsAre(HasSubstr("status 401")));
}

TEST(NoticeWatcher, LimitsEffectOfWrongClock) {
  FakeCloud fake("aws");
  fake.announce(testing::announcement("aws", 5 * 3600));
  NoticeWatcher watcher(asking(fake));
  ASSERT_TRUE(eventually([&] { return watcher.notice().has_value(); }));
  EXPECT_THAT(watcher.notice()->seconds_left(), AllOf(Ge(100), Le(120)));
  fake.announce(testing::announcement("aws", -5 * 3600));
  ASSERT_TRUE(eventually([&] { return watcher.notice()->seconds_left() == 0; }));
  EXPECT_THAT(watcher.notice()->text(), HasSubstr("now"));
}

TEST(NoticeWatcher, CountsGooglePreemptionFromLastClearPoll) {
  FakeCloud fake("google");
  auto options = asking(fake);
  options.interval_seconds = 0.3;
  NoticeWatcher watcher(options);
  ASSERT_TRUE(eventually([&] { return watcher.counts().polls == 1; }));
  fake.announce("TRUE");
  const auto announced = std::chrono::steady_clock::now();
  ASSERT_TRUE(eventually([&] { return watcher.notice().has_value(); }));
  EXPECT_LE(watcher.notice()->deadline, announced + std::chrono::seconds(30));
}

TEST(NoticeWatcher, TakesSoonerOfTwoGoogleEvents) {
  FakeCloud fake("google");
  auto options = asking(fake);
  options.has_gpu = true;
  NoticeWatcher watcher(options);
  fake.announce_maintenance("TERMINATE_ON_HOST_MAINTENANCE");
  ASSERT_TRUE(eventually([&] { return watcher.notice().has_value(); }));
  EXPECT_EQ(watcher.notice()->event, "maintenance");
  EXPECT_GT(watcher.notice()->seconds_left(), 3000);
  EXPECT_FALSE(watcher.notice()->is_urgent(60));
  fake.announce("TRUE");
  ASSERT_TRUE(eventually([&] { return watcher.notice()->event == "preempt"; }));
}

TEST(Notice, IsUrgentNearEndOrWhenSavesAreSlow) {
  const auto in = [](double seconds) {
    return Notice{
        .cloud = "AWS",
        .event = "stop",
        .deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::lround(seconds * 1000))};
  };
  EXPECT_TRUE(in(119).is_urgent(0));
  EXPECT_FALSE(in(300).is_urgent(0));
  EXPECT_FALSE(in(300).is_urgent(80));
  EXPECT_TRUE(in(300).is_urgent(91));
  EXPECT_TRUE(in(-5).is_urgent(0));
}

TEST(NoticeSpec, IsOnByDefaultWithBoundedPace) {
  const auto load = [](const std::string& text) {
    return config::load(config::schema_of<NoticeSpec>(), {.file = "job.yaml", .text = text}).as<NoticeSpec>();
  };
  EXPECT_TRUE(load("interval: 2s").watches());
  EXPECT_EQ(load("interval: 2s").interval.seconds, 2);
  EXPECT_FALSE(load("action: ignore").watches());
  for (const char* wrong : {"action: stop", "interval: 0.5s", "interval: 2m", "interval: null"}) {
    EXPECT_THROW(load(wrong), Error) << wrong;
  }
}

TEST(MetadataSources, AreReadFromOneVariable) {
  const auto read = [](const std::string& value) {
    return read_metadata_sources([&](const char* name) -> std::optional<std::string> {
      EXPECT_STREQ(name, "GPUTRAIN_METADATA_URL");
      return value;
    });
  };
  EXPECT_THAT(read("aws=http://127.0.0.1:8080,tencent=http://10.0.0.1/"),
              ElementsAre(MetadataSource{"aws", "127.0.0.1", 8080}, MetadataSource{"tencent", "10.0.0.1", 80}));
  EXPECT_THAT(read(""), IsEmpty());
  ::setenv("GPUTRAIN_METADATA_URL", "azure=http://127.0.0.2:81", 1);
  EXPECT_THAT(read_metadata_sources(), ElementsAre(MetadataSource{"azure", "127.0.0.2", 81}));
  ::unsetenv("GPUTRAIN_METADATA_URL");
  EXPECT_THAT(read_metadata_sources([](const char*) { return std::nullopt; }), IsEmpty());
  for (const char* wrong : {"127.0.0.1:80", "aws", "aws=127.0.0.1", "amazon=http://127.0.0.1", "aws=https://127.0.0.1",
                            "aws=http://localhost", "aws=http://127.0.0.1:0", "aws=http://127.0.0.1:65536",
                            "aws=http://127.0.0.1:8x", "aws=http://127.0.0.1,", ",", "aws=http://[::1]:80"}) {
    try {
      read(wrong);
      ADD_FAILURE() << wrong << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_THAT(error.what(), HasSubstr("GPUTRAIN_METADATA_URL"));
    }
  }
}

}  // namespace
}  // namespace gputrain::cloud
