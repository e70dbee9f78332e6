// Files of records as people have them: JSON lines and lists, tables, packed or plain.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "../../src/records/formats/record_file.hpp"
#include "datasets/opened.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/batch.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "gputrain/records/given_texts.hpp"

namespace gputrain::records {
using namespace datasets;
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<Record> json_records(const std::string& text) {
  TextWindow window(text, "x.json");
  return records_of_json(window, {.path = "x.json"});
}

std::string refusal_of_json(const std::string& text) {
  return error_of([&] { json_records(text); });
}

std::vector<Record> csv(const std::string& text, std::vector<std::string> columns = {}, bool are_numbers = false) {
  TextWindow window(text, "x.csv");
  return records_of_csv(window, {.path = "x.csv", .columns = std::move(columns), .are_numbers = are_numbers});
}

std::vector<Record> tsv(const std::string& text, std::vector<std::string> columns = {}) {
  TextWindow window(text, "x.tsv");
  return records_of_tsv(window, {.path = "x.tsv", .columns = std::move(columns)});
}

std::string gzip_of(const std::string& content) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, static_cast<uLong>(content.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd_of(const std::string& content) {
  std::string packed(ZSTD_compressBound(content.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), content.data(), content.size(), 3));
  return packed;
}

TEST(JsonRecords, KeepPlacesOfBadLines) {
  const auto records = json_records("{\"text\": \"a\"}\n\n[1]\n{\"text\": \n{\"text\": \"b\"}");
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[1].place, "x.json:3");
  EXPECT_THAT(records[1].problem, HasSubstr("no JSON object but array"));
  EXPECT_THAT(records[2].problem, HasSubstr("not JSON"));
  EXPECT_EQ(records[3].value["text"], "b");
  EXPECT_EQ(records[3].place, "x.json:5");
}

TEST(JsonRecords, SayWhyALineIsNoJson) {
  const auto records = json_records(
      "{\"text\": \"a\"}\n{\"text\": \"half \\ud83d\"}\n{\"score\": NaN}\n{\"score\": -Infinity}\n{'text': 1}\n{\"a\": "
      "1,}\n");
  EXPECT_THAT(records[1].problem, AllOf(HasSubstr("surrogate"), HasSubstr("(column 22)")));
  EXPECT_THAT(records[2].problem, AllOf(HasSubstr("NaN is no JSON"), HasSubstr("(column 11)"), HasSubstr("null")));
  EXPECT_THAT(records[3].problem, HasSubstr("Infinity is no JSON"));
  EXPECT_THAT(records[4].problem, HasSubstr("(column 2)"));
  EXPECT_THAT(records[5].problem, HasSubstr("(column 9)"));
}

TEST(JsonRecords, MayBeAListOverLines) {
  const auto records =
      json_records(" [ {\"text\": \"a, ]}\"} ,\n {\n  \"text\":\n \"b\\\"]\"}, {\"a\": [1, {}]}\n] \n");
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].value["text"], "a, ]}");
  EXPECT_EQ(records[1].value["text"], "b\"]");
  EXPECT_EQ(records[1].place, "x.json:2 (item 2)");
  EXPECT_EQ(records[2].value["a"].size(), 2U);
}

TEST(JsonRecords, NameTheLineAndColumnInAList) {
  const auto records = json_records("[{\"text\": \"a\"},\n {\n  \"text\": nul\n }, 7]");
  ASSERT_EQ(records.size(), 3U);
  EXPECT_THAT(records[1].problem, AllOf(HasSubstr("not JSON"), HasSubstr("(line 3, column 1")));
  EXPECT_THAT(records[2].problem, HasSubstr("no JSON object but number"));
}

TEST(JsonRecords, RefuseListsThatAreNotWhole) {
  EXPECT_THAT(refusal_of_json("[{\"text\": \"a\"},\n{\"text\": \"b\"}"),
              AllOf(HasSubstr("cut off"), HasSubstr("x.json:2")));
  EXPECT_THAT(refusal_of_json("[{\"text\": \"a\"}\n{\"text\": \"b\"}]"),
              AllOf(HasSubstr("comma"), HasSubstr("x.json:2")));
  EXPECT_THAT(refusal_of_json("[{\"text\": \"a\"},\n]"), AllOf(HasSubstr("missing before ']'"), HasSubstr("x.json:2")));
  EXPECT_THAT(refusal_of_json("[{\"text\": \"a\"}]\nmore"), HasSubstr("behind the end"));
  EXPECT_THAT(refusal_of_json("[{}}]"), HasSubstr("comma is missing"));
  EXPECT_THAT(refusal_of_json("[]"), HasSubstr("list is empty"));
}

TEST(JsonRecords, RefuseWhatIsNoRecords) {
  EXPECT_THAT(refusal_of_json("hello\nworld\n"), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal_of_json(" \n"), HasSubstr("empty"));
  EXPECT_THAT(refusal_of_json(std::string("PK\3\4", 4) + std::string(100, 'x')), HasSubstr("ZIP archive"));
  EXPECT_THAT(refusal_of_json("{\"a\": " + std::string(100000, '[') + "\n"), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal_of_json("{\n \"version\": 1,\n \"data\": [\n {\"text\": \"a\"}]}\n"),
              AllOf(HasSubstr("'data' has a list"), HasSubstr("jq -c '.[\"data\"][]'")));
  EXPECT_THAT(refusal_of_json("{\n \"text\": \"a\"}\n{\n \"text\": \"b\"}\n"),
              AllOf(HasSubstr("objects over several lines"), HasSubstr("jq -c .")));
  EXPECT_THAT(refusal_of_json("{\n \"text\": \"a\"}\n"), HasSubstr("one JSON object"));
}

TEST(JsonRecords, AreReadInPiecesOfAnySize) {
  std::string lines, list = "[";
  for (int i = 0; i < 40000; ++i) {
    const std::string record =
        "{\"text\": \"" + std::string(static_cast<size_t>(i) % 97, 'x') + std::to_string(i) + "\"}";
    lines += record + "\n";
    list += (i > 0 ? ",\n" : "") + record;
  }
  const std::string path = ::testing::TempDir() + "/gputrain_pieces_" + std::to_string(::getpid());
  for (const std::string& text : {lines, list + "]", gzip_of(lines), zstd_of(list + "]"),
                                  gzip_of(lines) + gzip_of(lines), zstd_of(lines) + zstd_of(lines)}) {
    std::ofstream(path, std::ios::binary) << text;
    int64_t bytes_left = kMostTextBytes;
    TextWindow window(path, bytes_left);
    const auto records = records_of_json(window, {.path = path});
    const size_t rounds = records.size() / 40000;
    ASSERT_EQ(records.size(), rounds * 40000);
    EXPECT_EQ(kMostTextBytes - bytes_left >= static_cast<int64_t>(rounds * lines.size()), true);
    for (size_t i = 0; i < records.size(); i += 997) {
      ASSERT_THAT(records[i].problem, IsEmpty());
      EXPECT_TRUE(records[i].value["text"].get<std::string>().ends_with(std::to_string(i % 40000)));
      EXPECT_THAT(records[i].place, HasSubstr(":" + std::to_string(i + 1)));
    }
  }
  std::filesystem::remove(path);
}

TEST(Table, ReadsQuotesAndLineBreaks) {
  const auto records = csv("prompt,completion\r\n\"a, \"\"b\"\"\",\"1\n2\"\r\n\r\nc,\nd\n");
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].value["prompt"], "a, \"b\"");
  EXPECT_EQ(records[0].value["completion"], "1\n2");
  EXPECT_EQ(records[0].place, "x.csv:2");
  EXPECT_EQ(records[1].value["completion"], "");
  EXPECT_EQ(records[2].place, "x.csv:6");
  EXPECT_THAT(records[2].problem, HasSubstr("1 cell"));
}

TEST(Table, RefusesOpenQuotesAndUnnamedColumns) {
  EXPECT_THAT(error_of([] { csv("a,b\n1,\"2\n3\n"); }), AllOf(HasSubstr("never closed"), HasSubstr("x.csv:2")));
  EXPECT_THAT(error_of([] { csv(",\n1,2\n"); }), HasSubstr("no column has a name"));
  EXPECT_THAT(error_of([] { csv("a,a\n1,2\n", {"a"}); }), HasSubstr("two columns are named 'a'"));
  EXPECT_THAT(error_of([] { csv("a,b\n"); }), HasSubstr("no row"));
  EXPECT_THAT(error_of([] { csv("{\"a\": 1, \"b\": 2}\n"); }), HasSubstr("format: jsonl"));
}

TEST(Table, NeedsNamesForTheColumnsThatAreReadAlone) {
  const auto records = csv(",text,note,note, label \n0,a,x,y,1\n", {"text", "label"});
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].value["text"], "a");
  EXPECT_EQ(records[0].value["label"], "1");
  EXPECT_EQ(records[0].value["note"], "x");
  EXPECT_FALSE(records[0].value.contains(""));
}

TEST(Table, FindsWhatSeparatesItsCells) {
  std::vector<Record> records;
  EXPECT_THAT(warning_of([&] {
                records = csv("text;label\na, or b;1\nc;2\n", {"text", "label"});
              }),
              HasSubstr("x.csv: semicolons separate its cells"));
  EXPECT_EQ(records[0].value["text"], "a, or b");
  EXPECT_THAT(warning_of([&] { records = csv("text\tlabel\n\"a\tb\"\t1\n", {"text", "label"}); }), HasSubstr("tabs"));
  EXPECT_EQ(records[0].value["text"], "a\tb");
  EXPECT_THAT(warning_of([&] { records = csv("a, b, c;1\nd, e;2\n", {"0", "1"}, true); }), HasSubstr("semicolons"));
  EXPECT_THAT(warning_of([&] { records = csv("text,label\na;b,1\nc;d,2\n", {"text", "label"}); }), IsEmpty());
  EXPECT_EQ(records[1].value["text"], "c;d");
  for (const std::string end : {"\n", "\r\n"}) {
    for (const std::string told : {"sep=;", "SEP=;", "\"sep=;\"", "sep=;;;"}) {
      EXPECT_THAT(warning_of([&] {
                    records = csv(told + end + "text;label" + end + "a,b;1", {"text", "label"});
                  }),
                  IsEmpty());
      EXPECT_EQ(records[0].value["text"], "a,b");
      EXPECT_EQ(records[0].place, "x.csv:3");
    }
    EXPECT_EQ(csv("sep=" + end + "a" + end, {"sep="})[0].value["sep="], "a") << "it names a column";
    EXPECT_EQ(tsv("sep=\t" + end + "text\tlabel" + end + "a\t1")[0].value["text"], "a");
    EXPECT_THAT(error_of([&] { tsv("sep=;" + end + "text;label" + end + "a;1"); }), HasSubstr("format: csv"));
  }
  EXPECT_THAT(warning_of([&] { records = csv("text\na;b\n", {"text"}); }), IsEmpty());
  EXPECT_EQ(records[0].value["text"], "a;b");
}

TEST(Table, WithTabsHasNoQuotes) {
  std::vector<Record> records;
  EXPECT_THAT(warning_of([&] { records = tsv("text\tlabel\n\"the cat\t1\nb\t0\n\"c\t1\n"); }), IsEmpty());
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].value["text"], "\"the cat");
  EXPECT_THAT(warning_of([&] { records = tsv("text\tlabel\n\"a \"\"b\"\"\"\t1\n\"c\"\t0\n\"\"\"d\"\"\"\t0\n"); }),
              AllOf(HasSubstr("x.tsv:2 and 1 more row"), HasSubstr("quotation marks"), HasSubstr("format: csv")));
  EXPECT_EQ(records[1].value["text"], "\"c\"");
  EXPECT_THAT(error_of([] { tsv("\"text\"\t\"label\"\n\"a\"\t\"1\"\n"); }), HasSubstr("format: csv reads this file"));
  EXPECT_THAT(tsv("text\tlabel\n\"a\nb\"\t1\n")[0].problem, HasSubstr("format: csv alone"));
}

TEST(Table, JoinsNoRowsWhereAQuoteIsALetter) {
  const auto records = csv("text,label\n\"the cat,1\nb,0\n\"c,1\nd,1\n");
  ASSERT_EQ(records.size(), 2U);
  EXPECT_THAT(records[0].problem, AllOf(HasSubstr("behind a closing quote"), HasSubstr("3 lines")));
  EXPECT_EQ(csv("text,label\n\"a\"b,1\n")[0].value["text"], "ab");
}

class FormatsTest : public FolderTest {
 protected:
  data::DatasetSplits open_bytes(const std::string& file, const std::string& format) {
    return open("{train: {path: " + path(file) + ", format: " + format + "}, text: {tokenizer: bytes}}", 64);
  }
  int64_t texts_in(const std::string& file, const std::string& format = "jsonl") {
    return open_bytes(file, format).train->size();
  }
};

TEST_F(FormatsTest, ArePackedOrPlain) {
  const std::string mark = "\xef\xbb\xbf";
  write("a.json.gz", gzip_of("{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n"));
  write("a.ndjson.zst", zstd_of("[{\"text\": \"ab\"}]"));
  write("a.csv", mark + "text,note\nab,1\n");
  write("a.csv.zst", zstd_of(mark + "\"text\",\"note\"\nab,1\ncd,2\nef,3\n"));
  EXPECT_EQ(texts_in("a.json.gz"), 2);
  EXPECT_EQ(texts_in("a.ndjson.zst"), 1);
  EXPECT_EQ(texts_in("a.csv", "csv"), 1);
  EXPECT_EQ(texts_in("a.csv.zst", "csv"), 3);
}

TEST_F(FormatsTest, RefuseDamagedZstandard) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += "{\"text\": \"" + std::to_string(i * 7919) + "\"}\n";
  const std::string packed = zstd_of(lines);
  write("cut.jsonl.zst", packed.substr(0, packed.size() - 9));
  EXPECT_THAT(error_of([&] { texts_in("cut.jsonl.zst"); }), HasSubstr("Zstandard data is cut off"));
  std::string damaged = packed;
  damaged[packed.size() / 2] = static_cast<char>(damaged[packed.size() / 2] ^ 0x5a);
  damaged[packed.size() / 2 + 1] = static_cast<char>(damaged[packed.size() / 2 + 1] ^ 0x5a);
  write("bad.jsonl.zst", damaged + "junk");
  EXPECT_THAT(error_of([&] { texts_in("bad.jsonl.zst"); }), Not(IsEmpty()));
  write("longer.jsonl.zst", packed + "junk and more");
  EXPECT_THAT(error_of([&] { texts_in("longer.jsonl.zst"); }), HasSubstr("damaged Zstandard data: Unknown frame"));
}

TEST_F(FormatsTest, OfAFolderAreAllReadOrTold) {
  write("f/a.jsonl", "{\"text\": \"ab\"}\n");
  write("f/b.json", "[{\"text\": \"ab\"}, {\"text\": \"cd\"}]");
  write("f/c.json.gz", gzip_of("{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n"));
  write("f/d.NDJSON.zst", zstd_of("{\"text\": \"ab\"}\n"));
  write("f/dataset_info.json", "{\n \"features\": {}\n}\n");
  write("f/e.csv", "text\nab\n");
  write("f/README.md", "words");
  int64_t count = 0;
  EXPECT_THAT(warning_of([&] { count = texts_in("f"); }),
              AllOf(HasSubstr("left out 2 files"), HasSubstr("no records of")));
  EXPECT_EQ(count, 6);
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_THAT(error_of([&] { texts_in("empty"); }), AllOf(HasSubstr(".ndjson"), HasSubstr(".zst")));
}

TEST_F(FormatsTest, OfTextsToPredictAreThoseOfTraining) {
  const auto texts = [&](const std::string& name) {
    std::vector<std::string> all;
    for (const GivenText& text : read_given_texts({.path = path(name)})) all.push_back(text.text);
    return all;
  };
  write("list.json", "[{\"text\": \"ab\"}, {\"text\": \"cd\"}]");
  write("lines.json.gz", gzip_of("{\"text\": \"ab\"}\n"));
  write("table.csv.zst", zstd_of(";text;note\n0;ab;x\n"));
  write("plain.txt", "{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n");
  write("braces.txt", "{ab}\r\n{cd}");
  EXPECT_THAT(texts("list.json"), ElementsAre("ab", "cd"));
  EXPECT_THAT(texts("lines.json.gz"), ElementsAre("ab"));
  EXPECT_THAT(texts("table.csv.zst"), ElementsAre("ab"));
  EXPECT_THAT(warning_of([&] { EXPECT_THAT(texts("plain.txt"), ElementsAre("ab", "cd")); }), HasSubstr("JSON objects"));
  EXPECT_THAT(texts("braces.txt"), ElementsAre("{ab}", "{cd}"));
}

}  // namespace
}  // namespace gputrain::records
