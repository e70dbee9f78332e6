#include "gputrain/monitor/tracked_settings.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace gputrain::monitor {
namespace {

TEST(TrackedSettings, HideSecrets) {
  const Settings given{{"env.HF_TOKEN", "hf_x"},      {"env.PIN_KEY", "1234"},
                       {"env.my_password", "x"},      {"vars.client_secret", "x"},
                       {"vars.Api_Key", "\"12\""},    {"vars.token", "abc"},
                       {"train.max_tokens", "20000"}, {"data.text.tokenizer", "bpe"},
                       {"env.PATH", "/bin"},          {"log.mlflow.uri", "https://me:pa55@host/x?token=y"}};
  const Settings safe{{"env.HF_TOKEN", "***"},       {"env.PIN_KEY", "***"},
                      {"env.my_password", "***"},    {"vars.client_secret", "***"},
                      {"vars.Api_Key", "***"},       {"vars.token", "***"},
                      {"train.max_tokens", "20000"}, {"data.text.tokenizer", "bpe"},
                      {"env.PATH", "/bin"},          {"log.mlflow.uri", "https://me:***@host/x?token=***"}};
  EXPECT_EQ(masked(given), safe);
}

TEST(TrackedSettings, HaveTheirOwnTypes) {
  EXPECT_EQ(value_of("1.0e-05"), 1e-5);
  EXPECT_EQ(value_of("256"), 256);
  EXPECT_TRUE(value_of("256").is_number_integer());
  EXPECT_EQ(value_of("true"), true);
  EXPECT_TRUE(value_of("null").is_null());
  EXPECT_EQ(value_of("\"1e\\\"3\""), "1e\"3");
  for (const char* text : {"adamw", "10ep", "[1, 2]", "-", "1e999"}) EXPECT_EQ(value_of(text), text);
}

}  // namespace
}  // namespace gputrain::monitor
