#include "gputrain/doctor/page.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace gputrain::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Findings kFindings{
    {.check = "cpu", .text = "8 cores"},
    {.check = "shm",
     .verdict = Verdict::bad,
     .text = "/dev/shm has 64.0 MiB, which is too little for the ranks of this host, as NCCL needs",
     .fix = "sudo mount -o remount,size=8G /dev/shm"}};

TEST(DoctorPage, HasVerdictAndFix) {
  const std::string text = page(kFindings, 80, false);
  EXPECT_THAT(text, HasSubstr("cpu     ok   8 cores\n"));
  EXPECT_THAT(text, HasSubstr("shm     bad  /dev/shm has"));
  EXPECT_THAT(text, HasSubstr("\n             try: sudo mount"));
}

TEST(DoctorPage, StaysWithinItsColumns) {
  std::istringstream lines(page(kFindings, 60, false));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 60U) << line;
}

TEST(DoctorPage, ColoursOnlyIfAsked) {
  EXPECT_THAT(page(kFindings, 80, false), Not(HasSubstr("\x1b")));
  EXPECT_THAT(page(kFindings, 80, true), HasSubstr("\x1b[1;31mbad \x1b[0m"));
}

TEST(DoctorPage, SumsUp) {
  EXPECT_EQ(summary_line(kFindings, true), "unfit: 1 finding must be fixed");
  EXPECT_EQ(summary_line({kFindings[0]}, true), "fit to train on the CPU");
}

TEST(Findings, SurviveJson) {
  const Findings back = findings_of(nlohmann::json::parse(to_json(kFindings).dump()));
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[1].verdict, Verdict::bad);
  EXPECT_EQ(back[1].fix, kFindings[1].fix);
  EXPECT_FALSE(is_fit(back));
}

}  // namespace
}  // namespace gputrain::doctor
