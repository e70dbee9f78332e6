// Arbitrary bytes as a table, as JSON lines and as CoNLL's lines, whose labels and tags need not fit: an error, or
// classes with a number each, and numbers that a float holds.
//
//   build/fuzz/tests/records/labels_fuzzer -max_total_time=300 CORPUS
#include <cmath>
#include <string>
#include <vector>

#include "../../src/records/formats/record_file.hpp"
#include "../../src/records/labels.hpp"
#include "gputrain/datasets/parallel_for.hpp"
#include "gputrain/datasets/text_file.hpp"
#include "support/fuzzed_file.hpp"

namespace gputrain::datasets {
// Without threads, which libFuzzer cannot follow.
void parallel_for(size_t count, const std::function<void(size_t)>& work) {
  for (size_t i = 0; i < count; ++i) work(i);
}
}  // namespace gputrain::datasets

namespace {

using namespace gputrain::records;
using namespace gputrain::testing;

/// As training data gives classes, of which other data then has some.
void check_classes(std::vector<std::string> names) {
  const ClassNames first({names.begin(), names.begin() + std::ssize(names) / 2});
  for (const std::string& name : names) {
    accepts([&] { require(first.names().at(static_cast<size_t>(first.number_of(name))) == name); });
  }
  const ClassNames all(std::move(names));
  int64_t number = 0;
  for (const std::string& name : all.names()) {
    require(all.number_of(name) == number++);
    require(!nlohmann::json(name).dump().empty());  // throws if the name cannot be in config.json
  }
}

void check_labels(const std::vector<Record>& records) {
  std::vector<std::string> classes, sets;
  std::vector<const nlohmann::ordered_json*> labels;
  for (const Record& record : records) {
    if (!record.problem.empty()) continue;
    for (const auto& label : record.value) labels.push_back(&label);
  }
  const LabelReader one(labels, false, {}), several(labels, true, {}), known(labels, true, {"a", "b,c", "12"});
  for (const auto* label : labels) {
    accepts([&] {
      for (std::string& name : one.classes_in(*label)) classes.push_back(std::move(name));
    });
    accepts([&] {
      for (std::string& name : several.classes_in(*label)) sets.push_back(std::move(name));
    });
    accepts([&] { known.classes_in(*label); });
    accepts([&] { require(std::isfinite(static_cast<float>(number_in(*label)))); });
  }
  check_classes(std::move(classes));
  check_classes(std::move(sets));
}

void check_tags(const std::vector<Record>& records, bool are_of_lines) {
  std::vector<std::string> all;
  for (const Record& record : records) {
    accepts([&] {
      const auto words = texts_of_list(record.value, "tokens"), tags = texts_of_list(record.value, "tags");
      require(!are_of_lines || words.size() == tags.size());
      all.insert(all.end(), tags.begin(), tags.end());
    });
  }
  check_classes(std::move(all));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto read = [&](auto reader, const RecordFile& file) {
    gputrain::datasets::TextWindow text(std::string(reinterpret_cast<const char*>(data), size), "f");
    return reader(text, file);
  };
  accepts([&] { check_labels(read(records_of_csv, {.path = "f", .columns = {}})); });
  accepts([&] { check_labels(read(records_of_tsv, {.path = "f", .columns = {}, .are_numbers = true})); });
  accepts([&] {
    const std::vector<Record> records = read(records_of_json, {.path = "f", .columns = {}});
    check_labels(records);
    check_tags(records, false);
  });
  accepts([&] {
    const std::vector<Record> sentences = read(records_of_conll, {.path = "f", .columns = {"tokens", "tags"}});
    for (const Record& sentence : sentences) require(sentence.place.starts_with("f:"));
    check_tags(sentences, true);
  });
  return 0;
}
