#include "gputrain/core/secrets.hpp"

#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"

namespace gputrain {
namespace {

TEST(SecretName, IsKnownByAWord) {
  for (const char* name : {"HF_TOKEN", "GH_PAT", "PGPASS", "PGPASSWORD", "DB_PASSWD", "MYSQL_PWD", "SENTRY_DSN",
                           "REGISTRY_AUTH", "CREDS", "AWS_SECRET_ACCESS_KEY", "APIKEY", "API_TOKENS", "SSH_KEYFILE",
                           "MAX_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "db_password", "X-Amz-Signature"})
    EXPECT_TRUE(is_secret_name(name)) << name;
  for (const char* name : {"PATH",
                           "LD_LIBRARY_PATH",
                           "AUTHOR",
                           "PWD",
                           "OLDPWD",
                           "TOKENIZERS_PARALLELISM",
                           "PATIENCE",
                           "COMPATIBLE",
                           "DSNAME",
                           "MAX_TOKENS",
                           "NUM_TOKENS_PER_STEP",
                           "EOS_TOKEN",
                           "KEYBOARD",
                           "KEYPOINTS",
                           "MONKEY",
                           "NCCL_DEBUG",
                           "CUDA_VISIBLE_DEVICES",
                           "HOME",
                           "PASSES",
                           ""})
    EXPECT_FALSE(is_secret_name(name)) << name;
}

TEST(UrlSecrets, AreHidden) {
  EXPECT_EQ(without_url_secrets("https://me:s3cret@host:80/x and more"), "https://me:***@host:80/x and more");
  EXPECT_EQ(without_url_secrets("postgres://me:s3@cret@host/db"), "postgres://me:***@host/db");
  EXPECT_EQ(without_url_secrets("'https://s3cret@host/x.git'"), "'https://***@host/x.git'");
  EXPECT_EQ(without_url_secrets("http://h/x?a=1&token=s3cret&b=2"), "http://h/x?a=1&token=***&b=2");
  EXPECT_EQ(without_url_secrets("s3://b/x?X-Amz-Signature=ab&sig=cd#access_token=ef"),
            "s3://b/x?X-Amz-Signature=***&sig=***#access_token=***");
  EXPECT_EQ(without_url_secrets("http://a:s1@h, http://b:s2@h"), "http://a:***@h, http://b:***@h");
}

TEST(UrlSecrets, LeaveOtherTextAlone) {
  for (const char* text : {"", "://", "https://host:8080/a@b?x=1&page_size=2", "ssh://git@host/x.git", "me@host: x",
                           "https://me:***@host", "/data/TOKEN=en/x", "a?token=b", "http://h?token"})
    EXPECT_EQ(without_url_secrets(text), text);
}

TEST(StarredSecrets, KeepTheWidthOfALine) {
  EXPECT_EQ(with_starred_secrets("env: {HF_TOKEN: s3cr\u00e9t, N: 1}"), "env: {HF_TOKEN: ******, N: 1}");
  EXPECT_EQ(with_starred_secrets("  DB_PASSWD: \"a, b\"  # c"), "  DB_PASSWD: \"****\"  # c");
  EXPECT_EQ(with_starred_secrets("  PASSPHRASE: correct horse"), "  PASSPHRASE: *************");
  EXPECT_EQ(with_starred_secrets(R"({"GH_PAT" : "x", "A": 1})"), R"({"GH_PAT" : "*", "A": 1})");
  EXPECT_EQ(with_starred_secrets("--set env.GH_PAT=x"), "--set env.GH_PAT=*");
  EXPECT_EQ(with_starred_secrets(std::string("GH_PAT=x\0--y", 12)), std::string("GH_PAT=*\0--y", 12));
  EXPECT_EQ(with_starred_secrets("proxy: http://u:pw@h"), "proxy: http://u:**@h");
}

TEST(StarredSecrets, LeaveOtherTextAlone) {
  for (const char* text : {"train: {max_tokens: 2Btok}", "HF_TOKEN: ${env:HF_TOKEN}", "HF_TOKEN is unset", "HF_TOKEN",
                           "HF_TOKEN:", "PATH=/bin", "key: value"})
    EXPECT_EQ(with_starred_secrets(text), text);
}

TEST(Error, HidesSecretsOfUrls) {
  const Error error(ExitCode::data, {.what = "no https://a:s3cret@h", .where = "https://b:s3cret@h", .hint = "x"});
  EXPECT_STREQ(error.what(), "https://b:***@h: no https://a:***@h\n  try: x");
  EXPECT_EQ(error.parts().where, "https://b:***@h");
}

}  // namespace
}  // namespace gputrain
