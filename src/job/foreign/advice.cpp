// What keys of other tools are here: advice for a job that has one, and what `gputrain describe` says of it.
#include <algorithm>

#include "gputrain/config/problem.hpp"
#include "gputrain/config/settings_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/wrap.hpp"
#include "gputrain/models/model.hpp"
#include "moving.hpp"

namespace gputrain::app {
namespace foreign {
namespace {

using config::Node;
using Instead = config::Schema::Instead;

bool has_name(const Row& row, const std::string& name) { return std::ranges::find(row.names, name) != row.names.end(); }

/// Returns what a key that is read with others is here; empty: it is not such a key, or sets lines by itself.
std::string meaning_of(const std::vector<const Table*>& tables, const std::string& name) {
  for (const Table* table : tables)
    for (const Row& row : *table)
      if (has_name(row, name)) return row.meaning;
  return {};
}

/// Returns what rows say of one key alone; nothing: they do not have it.
std::optional<Instead> instead(const std::vector<const Table*>& tables, const std::string& name, const Node& value) {
  Node root;
  root.kind = Node::Kind::map;
  root.parts.push_back(value);
  root.parts.back().key = name;
  if (value.kind == Node::Kind::null) {
    root.parts.back().kind = Node::Kind::scalar;
    root.parts.back().text = "true";
  }
  Moving job(root);
  try {
    if (!move_all(job, root, tables).empty()) return std::nullopt;
  } catch (const Error& refused) {
    return Instead{{}, refused.parts().what};
  }
  if (value.kind == Node::Kind::null) return Instead{{}, "leave it out"};
  if (!job.told().empty()) return Instead{{}, job.told().front().why};
  if (!job.settings().empty()) return Instead{job.settings()};
  const std::string meaning = meaning_of(tables, name);
  return meaning.empty() ? std::nullopt : std::optional(Instead{{}, meaning});
}

/// Returns whether the job in whose file a value stands has a model of images.
bool is_of_images(const Node& value) {
  if (!value.location.source || value.location.source->kind != config::Source::Kind::file) return false;
  try {
    const Node job = config::document(value.location.source->text, value.location.source->name);
    const Node* model = job.find("model");
    const Node* type = model == nullptr ? nullptr : model->find("type");
    if (type == nullptr || models::catalog().find(type->text) == nullptr) return false;
    return !models::catalog().reads(models::catalog().with_defaults(type->text)).reads_tokens();
  } catch (const config::SpecError&) {
    return false;
  }
}

/// Returns what the word of another tool is here, as the value of one of our keys.
std::optional<Instead> instead_of_word(const std::string& ours, const Node& value) {
  if (value.kind != Node::Kind::scalar) return std::nullopt;
  std::string word = our_word(ours, value.text);
  if (word.empty()) return std::nullopt;
  if (ours == "checkpoint.metric" && word == "accuracy" && is_of_images(value)) word = "top1";
  return Instead{{{ours, word}}};
}

bool has_exact(const Table& table, const std::string& name) {
  return std::ranges::any_of(table, [&](const Row& row) { return has_name(row, name); });
}

void add(Node& map, const std::string& key, const std::string& text) {
  Node& part = map.parts.emplace_back();
  part.kind = Node::Kind::scalar;
  part.key = key;
  part.text = text;
}

/// Returns the lines that a key sets together with what a tool's job needs at least.
std::vector<std::string> lines_of(const Tool& tool, const std::string& name) {
  const auto lines_with = [&](const std::string& value) {
    Node root;
    root.kind = Node::Kind::map;
    std::vector<std::pair<std::string, std::string>> keys{{"base_model", "x"},         {"model_name_or_path", "x"},
                                                          {"dataset_name", "x.jsonl"}, {"val_set_size", "0.1"},
                                                          {"val_size", "0.1"},         {"validation_file", "x.jsonl"}};
    if (!value.empty()) std::erase_if(keys, [&](const auto& key) { return key.first == name; });
    if (!value.empty()) keys.emplace_back(name, value);
    for (const auto& [key, text] : keys) add(root, key, text);
    return moved_by(tool, root).job.lines();
  };
  std::vector<std::string> changed;
  for (const char* value : {"3", "true", "0.5", "epoch"}) {
    try {
      const auto without = lines_with(""), with = lines_with(value);
      for (const auto& [ours, line] : with)
        if (const auto known = without.find(ours); known == without.end() || known->second.value != line.value)
          changed.push_back(ours);
    } catch (const Error&) {
      continue;  // not such a value
    }
    if (!changed.empty()) break;
  }
  return changed;
}

/// Returns what a key is here; empty: the tool does not have it.
std::string meaning_in(const Tool& tool, const std::vector<const Table*>& tables, const std::string& name) {
  Node root;
  root.kind = Node::Kind::map;
  add(root, name, "1");
  Moving job(root);
  try {
    if (!move_all(job, root, tables).empty()) return {};
  } catch (const Error& refused) {
    return ": " + refused.parts().what;
  }
  if (!job.told().empty() && job.settings().empty()) return ": " + job.told().front().why;
  if (const std::string meaning = meaning_of(tables, name); !meaning.empty()) return ": " + meaning;
  std::vector<std::string> ours;
  for (const auto& [key, unused] : job.settings()) ours.push_back(key);
  if (ours.empty()) ours = lines_of(tool, name);
  if (ours.empty()) return ": `gputrain import` reads it together with other keys";
  std::string list;
  for (size_t i = 0; i < ours.size(); ++i) list += (i == 0 ? "" : i + 1 < ours.size() ? ", " : " and ") + ours[i];
  return " is " + list + " here";
}

}  // namespace
}  // namespace foreign

std::optional<config::Schema::Instead> instead_of_foreign(const std::string& dotted, const config::Node& value) {
  if (auto found = foreign::instead_of_word(dotted, value)) return found;
  const std::string last = dotted.substr(dotted.rfind('.') == std::string::npos ? 0 : dotted.rfind('.') + 1);
  config::Node given = value;
  // A value that switches something off is told as one that does not: the user has written it down.
  if (given.kind != config::Node::Kind::map && foreign::is_off(given)) given.kind = config::Node::Kind::null;
  if (auto found = foreign::instead({&foreign::other_rows()}, last, given)) return found;
  if (dotted != last) {  // a short word in a group may mean anything
    const bool is_long = last.find('_') != std::string::npos;
    for (const foreign::Tool& tool : foreign::tools())
      for (const foreign::Table* table : tool.tables)
        if ((is_long || table == &foreign::trainer_rows()) && foreign::has_exact(*table, last))
          return foreign::instead(tool.tables, last, given);
    return std::nullopt;
  }
  if (auto found = foreign::instead({&foreign::other_top_rows()}, last, given)) return found;
  for (const foreign::Tool& tool : foreign::tools())
    if (auto found = foreign::instead(tool.tables, last, given)) return found;
  return std::nullopt;
}

std::string describe_foreign(const std::string& name, size_t width) {
  std::string text;
  std::vector<std::string> seen;  // TRL has five trainers
  const auto add = [&](const std::string& title, const std::string& meaning) {
    if (meaning.empty() || std::ranges::find(seen, meaning) != seen.end()) return;
    seen.push_back(meaning);
    text += wrapped(name + " of " + title + meaning, width - 2, 2) + "\n";
  };
  const auto& tools = foreign::tools();
  const foreign::Tool& transformers = tools.back();
  add(transformers.title, foreign::meaning_in(transformers, {&foreign::trainer_rows(), &foreign::script_rows()}, name));
  for (const foreign::Tool& tool : tools) {
    std::vector<const foreign::Table*> own = tool.tables;
    std::erase(own, &foreign::trainer_rows());
    if (&tool != &transformers) add(tool.title, foreign::meaning_in(tool, own, name));
  }
  if (text.empty())
    for (const foreign::Table* table : {&foreign::other_rows(), &foreign::other_top_rows()})
      add("other programs", foreign::meaning_in(transformers, {table}, name));
  return text;
}

}  // namespace gputrain::app
