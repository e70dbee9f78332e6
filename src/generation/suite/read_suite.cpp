#include <algorithm>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/config/names.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/generation/suite.hpp"

namespace gputrain::generation {
namespace {

using nlohmann::json;

/// The keys of a kind of line; the first ones must be there.
struct LineForm {
  const char* kind;
  std::vector<std::string> needed, others;
};

const std::vector<LineForm>& line_forms() {
  static const std::vector<LineForm> forms{{"multiple choice", {"context", "choices", "answer"}, {"delimiter", "task"}},
                                           {"a text", {"text"}, {"task"}},
                                           {"a question", {"prompt", "answer"}, {"stop", "max_new_tokens", "task"}}};
  return forms;
}

/// One line, whose values are asked for by key.
class SuiteLine {
 public:
  SuiteLine(json object, std::string place) : object_(std::move(object)), place_(std::move(place)) {}

  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const {
    throw Error(ExitCode::data, {.what = what, .where = place_, .hint = hint});
  }

  bool has(const std::string& key) const { return object_.contains(key); }

  /// Checks the keys; the kind of line is seen by those that no other kind has.
  const LineForm& form() const {
    const auto& forms = line_forms();
    const LineForm& found = has("choices") || has("context") ? forms[0] : has("prompt") ? forms[2] : forms[1];
    if (&found == &forms[1] && !has("text"))
      fail("the line has none of the keys \"choices\", \"text\" and \"prompt\"", forms_text());
    for (const std::string& key : found.needed) {
      if (!has(key)) fail("\"" + key + "\" is missing", forms_text());
    }
    std::vector<std::string> known = found.needed;
    known.insert(known.end(), found.others.begin(), found.others.end());
    for (const auto& [key, value] : object_.items()) {
      if (std::ranges::find(known, key) != known.end()) continue;
      const std::string near = config::did_you_mean(key, known);
      fail("a line of " + std::string(found.kind) + " has no key \"" + key + "\"", near.empty() ? forms_text() : near);
    }
    return found;
  }

  std::string text(const std::string& key) const {
    if (object_[key].is_string()) return object_[key].get<std::string>();
    fail("\"" + key + "\" is not a text");
  }
  std::string text_with_content(const std::string& key) const {
    std::string value = text(key);
    if (value.empty()) fail("\"" + key + "\" is empty");
    return value;
  }

  int64_t number(const std::string& key, int64_t least, int64_t most) const {
    const json& value = object_[key];
    if (value.is_number_integer() && value.get<int64_t>() >= least && value.get<int64_t>() <= most)
      return value.get<int64_t>();
    fail("\"" + key + "\" is " + value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 40) +
         ", expected a whole number from " + grouped(least) + " to " + grouped(most));
  }

  std::vector<std::string> texts(const std::string& key) const {
    std::vector<std::string> list;
    if (!object_[key].is_array()) fail("\"" + key + "\" is not a list of texts");
    for (const json& each : object_[key]) {
      if (!each.is_string()) fail("\"" + key + "\" has an entry that is not a text");
      if (each.get_ref<const std::string&>().empty()) fail("\"" + key + "\" has an empty text");
      list.push_back(each.get<std::string>());
    }
    return list;
  }

 private:
  static std::string forms_text() {
    return R"({"context": "...", "choices": ["...", "..."], "answer": 0}, {"text": "..."} or )"
           R"({"prompt": "...", "answer": "..."})";
  }

  json object_;
  std::string place_;
};

Choices choices_of(const SuiteLine& line) {
  Choices asked{.context = line.text("context"), .choices = line.texts("choices")};
  if (asked.choices.size() < 2) line.fail("\"choices\" has fewer than two texts");
  asked.answer = line.number("answer", 0, std::ssize(asked.choices) - 1);
  if (line.has("delimiter")) asked.delimiter = line.text("delimiter");
  return asked;
}

Question question_of(const SuiteLine& line) {
  constexpr int64_t kMost = int64_t{1} << 20;
  Question asked{.prompt = line.text_with_content("prompt"), .answer = line.text("answer")};
  if (line.has("stop")) asked.stop = line.texts("stop");
  if (line.has("max_new_tokens")) asked.max_new_tokens = line.number("max_new_tokens", 1, kMost);
  return asked;
}

SuiteItem item_of(const std::string& text, SuiteItem item) {
  json object = parse_json(text);
  const SuiteLine line(object.is_object() ? object : json::object(), item.place);
  if (!object.is_object()) line.fail("the line is not a JSON object");
  const LineForm& form = line.form();
  if (&form == &line_forms()[0]) item.asked = choices_of(line);
  if (&form == &line_forms()[1]) item.asked = WholeText{line.text_with_content("text")};
  if (&form == &line_forms()[2]) item.asked = question_of(line);
  if (line.has("task")) item.task = line.text_with_content("task");
  return item;
}

}  // namespace

std::vector<SuiteItem> read_suite(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<SuiteItem> items;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    items.push_back(item_of(
        line, {.place = path.string() + ":" + std::to_string(number), .line = number, .task = {}, .asked = {}}));
  }
  if (items.empty()) {
    throw Error(ExitCode::data,
                {.what = file.is_open() ? "the suite has no lines" : "cannot open the file", .where = path.string()});
  }
  return items;
}

}  // namespace gputrain::generation
