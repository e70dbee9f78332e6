#include "../../src/cloud/clouds.hpp"

#include <ctime>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/random.hpp"
#include "support/fake_cloud.hpp"

namespace gputrain::cloud {
namespace {

using Kind = Reading::Kind;

const Cloud& cloud(std::string_view key) {
  for (const Cloud& one : clouds()) {
    if (one.key == key) return one;
  }
  throw std::runtime_error("no such cloud");
}

Reading read(std::string_view key, std::string_view body, size_t poll = 0, bool has_gpu = false) {
  return cloud(key).polls[poll].read(body, {.identity = "trainer-7", .has_gpu = has_gpu});
}

/// The same moment, converted by the C library.
WallTime moment(int year, int month, int day, int hour, int minute, int second) {
  std::tm parts{};
  parts.tm_year = year - 1900;
  parts.tm_mon = month - 1;
  parts.tm_mday = day;
  parts.tm_hour = hour;
  parts.tm_min = minute;
  parts.tm_sec = second;
  return WallTime(std::chrono::seconds(::timegm(&parts)));
}

TEST(MetadataTimes, AreReadInEveryCloudFormat) {
  EXPECT_EQ(read_utc_time("2017-09-18T08:22:00Z"), moment(2017, 9, 18, 8, 22, 0));
  EXPECT_EQ(read_utc_time("2028-02-29T23:59:59.1234567Z"), moment(2028, 2, 29, 23, 59, 59));
  EXPECT_EQ(read_http_date("Mon, 19 Sep 2016 18:29:47 GMT"), moment(2016, 9, 19, 18, 29, 47));
  EXPECT_EQ(read_china_time("2018-08-18 12:05:33"), moment(2018, 8, 18, 4, 5, 33));
  EXPECT_EQ(read_china_time("2018-01-01 03:00:00"), moment(2017, 12, 31, 19, 0, 0));
}

TEST(MetadataTimes, AreRefusedInOtherFormats) {
  for (const char* text :
       {"", "Z", "2017-09-18", "2017-09-18T08:22:00", "2017-09-18T08:22:00+00:00", "2017-09-18 08:22:00Z",
        "2017-13-18T08:22:00Z", "2017-02-29T08:22:00Z", "2017-09-18T24:22:00Z", "2017-09-18T08:60:00Z",
        " 2017-09-18T08:22:00Z", "2017-09-18T08:22:00Z ", "-017-09-18T08:22:00Z", "+017-09-18T08:22:00Z",
        "2017-9-18T08:22:00Z", "2017-09-18T08:22:00.Z", "99999-09-18T08:22:00Z"}) {
    EXPECT_FALSE(read_utc_time(text)) << text;
  }
  for (const char* text :
       {"", "Mon", "Mon, 19 Sep 2016 18:29:47", "Mon, 19 Sep 2016 18:29:47 CET", "Mon, 19 Sept 2016 18:29:47 GMT",
        "Mon, 31 Feb 2016 18:29:47 GMT", "Mon, 19 epO 2016 18:29:47 GMT", "Mon, 19  2016 18:29:47 GMT",
        "Foo, 19 Sep 2016 18:29:47 GMT", "2016-09-19T18:29:47Z"}) {
    EXPECT_FALSE(read_http_date(text)) << text;
  }
  EXPECT_FALSE(read_china_time("2018-08-18T12:05:33Z"));
}

TEST(AwsNotice, TreatsHibernationAsBegun) {
  EXPECT_EQ(read("aws", R"({"action": "stop", "time": "2017-09-18T08:22:00Z"})").at, moment(2017, 9, 18, 8, 22, 0));
  EXPECT_EQ(read("aws", R"({"action": "hibernate", "time": "2017-09-18T08:22:00Z"})").at, WallTime{});
}

TEST(GoogleNotice, IgnoresLiveMigration) {
  EXPECT_EQ(read("google", "NONE", 1).kind, Kind::clear);
  EXPECT_EQ(read("google", "MIGRATE_ON_HOST_MAINTENANCE\n", 1).kind, Kind::clear);
  EXPECT_EQ(read("google", "<html>", 1).kind, Kind::junk);
}

TEST(GoogleNotice, PromisesAnHourToGpuMachines) {
  const Reading plain = read("google", "TERMINATE_ON_HOST_MAINTENANCE", 1);
  EXPECT_EQ(plain.kind, Kind::notice);
  EXPECT_EQ(plain.promised_seconds, 60);
  EXPECT_EQ(read("google", "TERMINATE_ON_HOST_MAINTENANCE", 1, true).promised_seconds, 3600);
}

std::string azure_event(const std::string& type, const std::string& status, const std::string& resources,
                        const std::string& not_before) {
  return R"({"EventType": ")" + type + R"(", "EventStatus": ")" + status + R"(", "Resources": )" + resources +
         R"(, "NotBefore": ")" + not_before + "\"}";
}

std::string azure_list(const std::vector<std::string>& events) {
  std::string list;
  for (const std::string& event : events) list += (list.empty() ? "" : ", ") + event;
  return R"({"DocumentIncarnation": 3, "Events": [)" + list + "]}";
}

constexpr const char* kLater = "Mon, 19 Sep 2016 18:29:47 GMT";
constexpr const char* kSooner = "Mon, 19 Sep 2016 18:15:00 GMT";

TEST(AzureNotice, CountsEveryEventButAPause) {
  for (const char* type : {"Preempt", "Terminate", "Reboot", "Redeploy"}) {
    const Reading reading = read("azure", azure_list({azure_event(type, "Scheduled", R"(["trainer-7"])", kLater)}));
    EXPECT_EQ(reading.kind, Kind::notice) << type;
    EXPECT_EQ(reading.event, type);
    EXPECT_EQ(reading.at, moment(2016, 9, 19, 18, 29, 47));
  }
  EXPECT_EQ(read("azure", azure_list({azure_event("Freeze", "Scheduled", R"(["trainer-7"])", kLater)})).kind,
            Kind::clear);
}

TEST(AzureNotice, TakesNamesOfLettersDigitsAndMarksAlone) {
  const auto kind_of = [](const std::string& type) {
    return read("azure", azure_list({azure_event(type, "Scheduled", R"(["trainer-7"])", kLater)})).kind;
  };
  EXPECT_EQ(kind_of("AZaz09-_"), Kind::clear);  // a valid name, but of no event that we know
  for (const char* other : {"@", "[", "`", "{", "/", ":", "a b", ""}) EXPECT_EQ(kind_of(other), Kind::junk) << other;
}

TEST(AzureNotice, IgnoresEventsOfOtherMachines) {
  EXPECT_EQ(read("azure", azure_list({azure_event("Preempt", "Scheduled", R"(["trainer-8"])", kLater)})).kind,
            Kind::clear);
  EXPECT_EQ(
      read("azure", azure_list({azure_event("Preempt", "Scheduled", R"(["trainer-77", "trainer"])", kLater)})).kind,
      Kind::clear);
  EXPECT_EQ(
      read("azure", azure_list({azure_event("Preempt", "Scheduled", R"(["trainer-8", "TRAINER-7"])", kLater)})).kind,
      Kind::notice);
}

TEST(AzureNotice, CountsNoEventOfUnknownMachines) {
  const std::string whole = azure_event("Preempt", "Scheduled", R"(["trainer-7"])", kLater);
  const std::string list = R"("Resources": ["trainer-7"], )";
  ASSERT_NE(whole.find(list), std::string::npos);
  for (const std::string resources : {"", R"("Resources": "trainer-7", )", R"("Resources": [7], )"}) {
    std::string event = whole;
    event.replace(event.find(list), list.size(), resources);
    EXPECT_EQ(read("azure", azure_list({event})).kind, Kind::junk) << event;
  }
}

TEST(AzureNotice, CountsEventsUnderWayNotFinishedOnes) {
  const Reading started = read("azure", azure_list({azure_event("Reboot", "Started", R"(["trainer-7"])", "")}));
  EXPECT_EQ(started.kind, Kind::notice);
  EXPECT_EQ(started.at, WallTime{});
  EXPECT_EQ(read("azure", azure_list({azure_event("Reboot", "Completed", R"(["trainer-7"])", "")})).kind, Kind::clear);
  EXPECT_EQ(read("azure", azure_list({azure_event("Reboot", "Scheduled", R"(["trainer-7"])", "")})).kind, Kind::junk);
}

TEST(AzureNotice, TakesSoonestEventEvenBesideJunk) {
  const std::string later = azure_event("Reboot", "Scheduled", R"(["trainer-7"])", kLater);
  const std::string sooner = azure_event("Terminate", "Scheduled", R"(["trainer-7"])", kSooner);
  for (const auto& events :
       {std::vector{later, sooner}, {sooner, later}, {"17", later, sooner}, {sooner, later, "{}"}}) {
    EXPECT_EQ(read("azure", azure_list(events)).event, "Terminate");
  }
  EXPECT_EQ(read("azure", azure_list({"17"})).kind, Kind::junk);
}

class CloudAnswer : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Clouds, CloudAnswer, ::testing::ValuesIn(testing::kClouds),
                         [](const auto& named) { return named.param; });

TEST_P(CloudAnswer, IsReadSafelyWhenDamaged) {
  const std::string whole = testing::announcement(GetParam(), 100);
  ASSERT_EQ(read(GetParam(), whole).kind, Kind::notice);
  RandomStream random(20, 26);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    for (int64_t i = random.below(4); i >= 0; --i) {
      const auto place = static_cast<size_t>(random.below(static_cast<int64_t>(damaged.size())));
      damaged[place] = static_cast<char>(random.bits());
    }
    damaged.resize(static_cast<size_t>(random.below(static_cast<int64_t>(damaged.size()) + 1)));
    const Reading reading = read(GetParam(), damaged);
    for (const char c : reading.event) EXPECT_TRUE(c > ' ' && c <= '~') << "event with byte " << int(c);
    EXPECT_LT(reading.at.value_or(WallTime{}), moment(9999, 12, 31, 23, 59, 59) + std::chrono::hours(24));
  }
}

}  // namespace
}  // namespace gputrain::cloud
