#include "gputrain/config/name_patterns.hpp"

#include <gmock/gmock.h>

namespace gputrain::config {
namespace {

using ::testing::HasSubstr;

TEST(NamePattern, MatchesTheWholeNameWithStarsAcrossDots) {
  for (const char* pattern :
       {"h.0.attn.weight", "h.*", "*", "*.weight", "h.?.attn.*", "*attn*", "h*.*t", "h.0.attn.weight*"})
    EXPECT_TRUE(matches(pattern, "h.0.attn.weight")) << pattern;
  for (const char* pattern : {"", "h", "h.0", "attn.*", "*.bias", "h.?", "h.*.weights", "?", "h.0.attn.weight?"})
    EXPECT_FALSE(matches(pattern, "h.0.attn.weight")) << pattern;
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*b*c", "axbxbxc"));
  EXPECT_FALSE(matches("a*b*c", "axbxbx"));
}

TEST(NamePattern, HintsAtNearNamesAndModules) {
  const std::vector<std::string> names{"model.h.0.attn.weight", "model.h.0.attn.bias", "model.h.1.attn.weight",
                                       "head.weight"};
  EXPECT_THAT(pattern_hint("model.h.0.atn.*", names), HasSubstr("'model.h.0.attn.*'"));
  EXPECT_THAT(pattern_hint("h.1.*", names), HasSubstr("'model.h.1.*'"));
  EXPECT_THAT(pattern_hint("head.weigth", names), HasSubstr("'head.weight'"));
  EXPECT_EQ(pattern_hint("something.else.entirely", names), "there are head.*, model.*");
}

}  // namespace
}  // namespace gputrain::config
