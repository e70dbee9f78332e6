#include "gputrain/chat/template.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "support/python_reference.hpp"

namespace gputrain::chat {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string rendered(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  return Template::parse(source, "t").render(variables).text;
}

/// What is wrong, and where.
std::string refusal(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  try {
    return "rendered: " + rendered(source, variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.parts().what + " at " + error.parts().where;
  }
}

/// Ranges count characters in Python, bytes here.
ordered_json in_characters(const Rendered& result) {
  ordered_json ranges = ordered_json::array();
  const auto characters = [&](size_t bytes) {
    return std::count_if(result.text.begin(), result.text.begin() + static_cast<std::ptrdiff_t>(bytes),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  };
  for (const Range& range : result.generated) ranges.push_back({characters(range.begin), characters(range.end)});
  return ranges;
}

TEST(ChatTemplate, RendersLikeTransformers) {
  GPUTRAIN_NEED_REFERENCE("transformers");
  const fs::path folder = fs::path(::testing::TempDir()) / "chat_reference";
  fs::create_directories(folder);
  ASSERT_TRUE(gputrain::testing::run_reference("chat/chat_reference.py", {folder.string()}));
  std::ifstream file(folder / "cases.json");
  const ordered_json cases = ordered_json::parse(file);
  fs::remove_all(folder);
  size_t texts = 0;
  for (const ordered_json& one : cases) {
    SCOPED_TRACE(one.at("name").get<std::string>() + " with " + one.at("variables").dump().substr(0, 300));
    try {
      const Rendered result = Template::parse(one.at("template"), "t").render(one.at("variables"));
      ASSERT_TRUE(one.contains("text")) << "Python raises; here: " << result.text;
      ASSERT_EQ(result.text, one.at("text").get<std::string>());
      ASSERT_EQ(in_characters(result), one.at("ranges"));
      ++texts;
    } catch (const Error& error) {
      ASSERT_FALSE(one.contains("text")) << error.what();
    }
  }
  EXPECT_GT(texts, 4000);
}

TEST(ChatTemplate, SaysWhatIsWrongAtWhichLine) {
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"a\n{% if x %}\nb", "'if' has no end at t:2"},
      {"\n\n{{ 1 | nope }}", "no filter is called 'nope' at t:3"},
      {"{{ 1 is nope }}", "no test is called 'nope' at t:1"},
      {"\n{% include 'x' %}", "the statement is not supported: 'include' at t:2"},
      {"{{ 'x }}", "a string has no end at t:1"},
      {"{{ nope(1) }}", "'nope' is undefined at t:1"},
      {"\n{{ x.a.b }}", "'dict object' has no attribute 'a' at t:2"},
      {"{{ x.list.append(1) }}", "'append' would change a list, which templates must not at t:1"},
      {"{{ 'a'.zfill(3) }}", "the method 'zfill' is not supported at t:1"},
      {"{{ 'a' + 1 }}", "'+' does not work between str and int at t:1"},
      {"{%- macro m(a) -%}{{ a }}{%- endmacro -%}\n{{ m(1, 2) }}", "macro 'm' takes not more than 1 arguments at t:2"},
      {"\n{{ raise_exception('roles must alternate') }}", "roles must alternate at t:2"},
      {"{% macro m() %}{% generation %}{% endgeneration %}{% endmacro %}", "inside of a macro"},
  };
  for (const auto& [source, message] : expected)
    EXPECT_THAT(refusal(source, {{"x", {{"list", {1}}}}}), HasSubstr(message)) << source;
  EXPECT_THAT(refusal("\xFF"), HasSubstr("not UTF-8"));
  EXPECT_THAT(refusal("{{ x }}", {{"x", "\xFF"}}), HasSubstr("not UTF-8"));
}

TEST(ChatTemplate, StopsWhatGoesOnWithoutEnd) {
  const std::string many = "{% for i in range(99999) %}{% for j in range(99999) %}";
  EXPECT_THAT(refusal(many + "{% endfor %}{% endfor %}"), HasSubstr("steps: does it loop without end?"));
  EXPECT_THAT(refusal("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("macros call each other too deeply"));
  EXPECT_THAT(
      refusal("{% set ns = namespace(s='abcdefgh') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"),
      HasSubstr("a text gets longer than 64 MiB"));
  EXPECT_THAT(refusal("{{ 'x' * 99999999999 }}"), HasSubstr("steps"));
  EXPECT_THAT(
      refusal(
          "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}"),
      HasSubstr("steps"));
  EXPECT_THAT(refusal("{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}"),
              HasSubstr("nested more than 100 deep"));
}

TEST(ChatTemplate, PaysForTheWorkOnLongTexts) {
  const std::string letters = "(('a' * 1000) * 30000)", others = "(('b' * 1000) * 20000 ~ 'a')";
  for (const std::string& source :
       {letters + ".strip(" + others + ")", letters + ".rstrip(" + others + ")", letters + " | trim(" + others + ")",
        letters + ".find(" + letters + " ~ 'b')", letters + ".rfind('b' ~ " + letters + ")",
        letters + ".count(('a' * 20000) * 1000 ~ 'b')", "(('a' * 20000) * 1000 ~ 'b') in " + letters,
        letters + ".split(('a' * 20000) * 1000 ~ 'b')", letters + ".replace(('a' * 20000) * 1000 ~ 'b', '')"})
    EXPECT_THAT(refusal("{{ " + source + " }}"), HasSubstr("steps")) << source;
  for (const char* work : {"t.isalpha()", "t == u", "t < u", "t.startswith(u)", "t | upper | length", "t.find('x')"})
    EXPECT_THAT(refusal("{% set t = " + letters + " %}{% set u = " + letters + " %}{% for i in range(90000) %}{% if " +
                        work + " %}{% endif %}{% endfor %}"),
                HasSubstr("steps"))
        << work;
  EXPECT_THAT(refusal("{{ (('1_' * 1000) * 4000 ~ '1') | int }}"), HasSubstr("the number"));
  EXPECT_EQ(rendered("{{ '1_2__3' | int }} {{ ' +1_000_000 ' | int }}"), "0 1000000");
}

TEST(ChatTemplate, RefusesDeepNesting) {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  EXPECT_THAT(refusal("{{ " + repeated("(", 9999) + "1" + repeated(")", 9999) + "}}"),
              HasSubstr("nested more than 100 deep"));
  EXPECT_THAT(refusal("{{ " + repeated("not ", 9999) + "1 }}"), HasSubstr("nested more than 100 deep"));
  EXPECT_THAT(refusal(repeated("{% if 1 %}", 9999)), HasSubstr("nested more than 100 deep"));
  for (const char* chain : {" + 1", ".a", "[0]", "()", " | trim", " and 1", " if 1"})
    EXPECT_THAT(refusal("{{ x" + repeated(chain, 9999) + " }}"), HasSubstr("too many parts")) << chain;
  ordered_json deep = 1;
  for (int i = 0; i < 200; ++i) deep = ordered_json::array({std::move(deep)});
  EXPECT_THAT(refusal("{{ x }}", {{"x", deep}}), HasSubstr("nested more than 100 deep"));
}

TEST(ChatTemplate, GivesRangesInBytes) {
  const Rendered result = Template::parse("é{% generation %}ü{% endgeneration %}x", "t").render(ordered_json::object());
  EXPECT_EQ(result.text, "éüx");
  EXPECT_THAT(result.generated, ElementsAre(Range{2, 4}));
}

TEST(ChatTemplate, RendersInManyThreadsAtOnce) {
  const Template source = Template::parse(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m %}{{ ns.n }},{% endfor %}", "t");
  std::vector<std::string> texts(8);
  std::vector<std::thread> threads;
  for (std::string& text : texts)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) text = source.render({{"messages", {1, 2, 3}}}).text;
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, "1,3,6,");
}

}  // namespace
}  // namespace gputrain::chat
