#include "gputrain/launch/environment.hpp"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"

namespace gputrain::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Values = std::map<std::string, std::string>;

Launch read(const Values& values) {
  return read_environment([&values](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  });
}

Values two_ranks() {
  return {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
}

Values with(Values values, const std::string& name, const std::string& value) {
  values[name] = value;
  return values;
}

Values without(Values values, const std::string& name) {
  values.erase(name);
  return values;
}

std::string refusal_of(const Values& values) {
  try {
    read(values);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "was accepted";
  return {};
}

TEST(Environment, WithoutVariablesTheProcessIsAlone) {
  const Launch launch = read({});
  EXPECT_EQ(launch.launcher, "alone");
  EXPECT_EQ(launch.rendezvous.world_size, 1);
  EXPECT_TRUE(launch.rendezvous.master_address.empty());
}

TEST(Environment, AnAddressLeftOverInTheShellDoesNotMakeARank) {
  EXPECT_EQ(read({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}}).launcher, "alone");
}

TEST(Environment, ReadsTorchrunsVariables) {
  Values values = two_ranks();
  values.merge(Values{{"LOCAL_RANK", "1"},
                      {"LOCAL_WORLD_SIZE", "2"},
                      {"TORCHELASTIC_RUN_ID", "none"},
                      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                      {"TORCHELASTIC_RESTART_COUNT", "3"}});
  const Launch launch = read(values);
  EXPECT_EQ(launch.launcher, "torchrun");
  EXPECT_EQ(launch.rendezvous.rank, 1);
  EXPECT_EQ(launch.rendezvous.world_size, 2);
  EXPECT_EQ(launch.rendezvous.local_rank, 1);
  EXPECT_EQ(launch.rendezvous.local_world_size, 2);
  EXPECT_EQ(launch.rendezvous.master_address, "127.0.0.1");
  EXPECT_EQ(launch.rendezvous.master_port, 29500);
  EXPECT_TRUE(launch.rendezvous.store_is_running);
  EXPECT_EQ(launch.rendezvous.attempt, "3");
}

TEST(Environment, RanksThatMeetOnTheLoopbackShareTheHost) {
  const auto at = read(two_ranks()).rendezvous;
  EXPECT_EQ(at.local_rank, 1);
  EXPECT_EQ(at.local_world_size, 2);
  EXPECT_FALSE(at.store_is_running);
}

TEST(Environment, RanksThatMeetElsewhereHaveAHostEachUnlessToldOtherwise) {
  const auto apart = read(with(two_ranks(), "MASTER_ADDR", "node0")).rendezvous;
  EXPECT_EQ(apart.local_rank, 0);
  EXPECT_EQ(apart.local_world_size, 1);
  const auto told = read(with(with(two_ranks(), "MASTER_ADDR", "node0"), "LOCAL_RANK", "1")).rendezvous;
  EXPECT_EQ(told.local_rank, 1);
  EXPECT_EQ(told.local_world_size, 2);
}

TEST(Environment, HalfSetVariablesAreRefusedNamingTheMissingOne) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(refusal_of(without(two_ranks(), name)), HasSubstr(std::string(name) + " is unset"));
    EXPECT_THAT(refusal_of(with(two_ranks(), name, "")), HasSubstr(name));
  }
  EXPECT_THAT(refusal_of({{"LOCAL_RANK", "0"}}), HasSubstr("RANK is unset"));
  EXPECT_THAT(refusal_of(with(two_ranks(), "LOCAL_WORLD_SIZE", "2")), HasSubstr("LOCAL_RANK is not"));
}

TEST(Environment, ContradictionsAreRefusedShowingBothValues) {
  EXPECT_THAT(refusal_of(with(two_ranks(), "RANK", "2")), AllOf(HasSubstr("RANK=2"), HasSubstr("WORLD_SIZE=2")));
  Values local = with(with(two_ranks(), "LOCAL_RANK", "1"), "LOCAL_WORLD_SIZE", "1");
  EXPECT_THAT(refusal_of(local), AllOf(HasSubstr("LOCAL_RANK=1"), HasSubstr("LOCAL_WORLD_SIZE=1")));
  local = with(with(two_ranks(), "RANK", "0"), "LOCAL_RANK", "1");
  EXPECT_THAT(refusal_of(local), AllOf(HasSubstr("LOCAL_RANK=1"), HasSubstr("RANK=0")));
  EXPECT_THAT(refusal_of(with(two_ranks(), "LOCAL_WORLD_SIZE", "3")), HasSubstr("LOCAL_WORLD_SIZE"));
}

TEST(Environment, ValuesThatAreNoNumbersOrOutOfRangeAreRefused) {
  for (const char* value : {"one", "1x", " 1", "-1", "1.0", "99999999999999999999", "2097152"}) {
    EXPECT_THAT(refusal_of(with(two_ranks(), "RANK", value)), HasSubstr("RANK")) << value;
    EXPECT_THAT(refusal_of(with(two_ranks(), "WORLD_SIZE", value)), HasSubstr("WORLD_SIZE")) << value;
  }
  for (const char* value : {"0", "65536", "-1", "http"}) {
    EXPECT_THAT(refusal_of(with(two_ranks(), "MASTER_PORT", value)), HasSubstr("MASTER_PORT=" + std::string(value)));
  }
}

}  // namespace
}  // namespace gputrain::launch
