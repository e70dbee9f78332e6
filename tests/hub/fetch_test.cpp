#include "gputrain/hub/fetch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "../../src/hub/digest.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::hub {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

Fetching read(const std::map<std::string, std::string>& variables) {
  return fetching_from_environment({.name = "org/model"}, [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(Fetch, ReadsEndpointAndTokenFromEnvironment) {
  const Fetching how = read({{"HOME", "/nowhere"}, {"HF_ENDPOINT", "http://mirror/"}, {"HF_TOKEN", " hf_x\n"}});
  EXPECT_EQ(how.endpoint, "http://mirror");
  EXPECT_EQ(how.token, "hf_x");
  EXPECT_EQ(read({{"HOME", "/nowhere"}}).endpoint, "https://huggingface.co");
  EXPECT_EQ(read({{"HOME", "/nowhere"}}).token, "");
  EXPECT_THROW(read({{"HF_ENDPOINT", "mirror"}}), Error);
  EXPECT_THROW(read({{"HF_TOKEN", "hf_x\nX-Other: y"}}), Error);
}

TEST(Fetch, KnowsWhichVariableForbidsToAsk) {
  const auto offline = [](std::map<std::string, std::string> variables) {
    variables["HOME"] = "/nowhere";
    return read(variables).offline;
  };
  EXPECT_EQ(offline({}), "");
  for (const char* yes : {"1", "ON", "yes", "True"}) EXPECT_EQ(offline({{"HF_HUB_OFFLINE", yes}}), "HF_HUB_OFFLINE");
  EXPECT_EQ(offline({{"TRANSFORMERS_OFFLINE", "1"}}), "TRANSFORMERS_OFFLINE");
  EXPECT_EQ(offline({{"HF_HUB_OFFLINE", ""}, {"TRANSFORMERS_OFFLINE", "1"}}), "TRANSFORMERS_OFFLINE");
  EXPECT_EQ(offline({{"HF_HUB_OFFLINE", "0"}, {"TRANSFORMERS_OFFLINE", "1"}}), "");  // the first counts
}

/// A network without servers.
struct Silence final : net::Transport {
  net::Response send(const net::Request&) override { throw net::Unreachable("nobody answers"); }
};

TEST(Fetch, EndsAfterFiveTriesWithoutServer) {
  std::vector<std::string> troubles;
  const Fetching how{
      .model = {.name = "org/model"},
      .cache = "/nowhere",
      .retrying = {.first_pause_seconds = 0, .on_trouble = [&](const std::string& text) { troubles.push_back(text); }}};
  try {
    fetch(how, net::Client(std::make_unique<Silence>()));
    FAIL() << "there is no server";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::environment);
    EXPECT_THAT(error.what(), HasSubstr("nobody answers (tried 5 times)"));
  }
  EXPECT_THAT(troubles, SizeIs(4));
}

TEST(Sha256, AgreesWithTheStandard) {
  Sha256 digest;
  digest.add("a");
  digest.add("bc");
  EXPECT_EQ(digest.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // FIPS 180-4
  EXPECT_EQ(digest.finish(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");  // of nothing
}

}  // namespace
}  // namespace gputrain::hub
