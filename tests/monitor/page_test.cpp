#include "gputrain/monitor/page.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/monitor/short_names.hpp"

namespace gputrain::monitor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kData = R"(<script type="application/json" id="data">)";

TEST(Page, HoldsItsDataAndNoMarkupOfOthers) {
  const nlohmann::ordered_json data{{"name", "</script><b>/*SCRIPT*/\xff"}};
  for (const PageKind kind : {PageKind::run, PageKind::comparison, PageKind::sweep}) {
    const std::string page = page_of(kind, data);
    EXPECT_THAT(page, Not(HasSubstr("</script><b>")));
    const size_t begin = page.find(kData) + std::string(kData).size();
    const auto read = nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
    EXPECT_EQ(read["name"], "</script><b>/*SCRIPT*/\uFFFD");
    for (const char* loading : {"src=", "<link", "@import", "https:"}) EXPECT_THAT(page, Not(HasSubstr(loading)));
    EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  }
  EXPECT_THAT(live_page(), HasSubstr(std::string(kData) + "null</script>"));
}

TEST(ShortNames, AreWhatTellsPathsApart) {
  EXPECT_THAT(short_names({"runs/a", "runs/b/"}), ElementsAre("a", "b"));
  EXPECT_THAT(short_names({"runs/a/fold", "runs/b/fold"}), ElementsAre("a", "b"));
  EXPECT_THAT(short_names({"runs/a/1", "runs/b/2"}), ElementsAre("a/1", "b/2"));
  EXPECT_THAT(short_names({"runs", "runs/x"}), ElementsAre("runs", "runs/x"));
  EXPECT_THAT(short_names({"runs/a", "runs/a"}), ElementsAre("a", "a (2)"));
  EXPECT_THAT(short_names({"runs/only"}), ElementsAre("only"));
}

}  // namespace
}  // namespace gputrain::monitor
