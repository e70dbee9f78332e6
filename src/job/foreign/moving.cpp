#include "moving.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <regex>

#include "gputrain/config/settings_file.hpp"
#include "gputrain/core/wrap.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app::foreign {
namespace {

using config::Node;

constexpr size_t kLongest = 60;  // characters of a value in a comment
constexpr size_t kRoom = 108;    // characters of a line of a comment

// Names of keys and those in other versions of transformers.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOtherNames{
    {{"eval_strategy", "evaluation_strategy"},
     {"per_device_train_batch_size", "per_gpu_train_batch_size"},
     {"per_device_eval_batch_size", "per_gpu_eval_batch_size"},
     {"gradient_checkpointing", "activation_checkpointing"}}};

Node text_node(const std::string& text) {
  Node node;
  node.kind = Node::Kind::scalar;
  node.text = text;
  node.quoted = true;
  return node;
}

/// Places `value` under a dotted key, in groups that it makes.
void place(Node& root, const std::string& dotted, Node value) {
  Node* group = &root;
  size_t begin = 0;
  for (size_t dot = dotted.find('.'); dot != std::string::npos; dot = dotted.find('.', begin)) {
    const std::string name = dotted.substr(begin, dot - begin);
    group->kind = Node::Kind::map;
    Node* inner = group->find(name);
    if (inner == nullptr) {
      group->parts.emplace_back().key = name;
      inner = &group->parts.back();
    }
    group = inner;
    begin = dot + 1;
  }
  group->kind = Node::Kind::map;
  value.key = dotted.substr(begin);
  group->parts.push_back(std::move(value));
}

/// Returns the schema inside a key, or null.
const config::Schema* inside(const config::Key& key) {
  const config::ValueType* type = &key.type();
  while (type->kind == config::ValueType::Kind::optional) type = type->inner;
  return type->kind == config::ValueType::Kind::group ? &type->schema() : nullptr;
}

/// Returns the options of the entry that a group picks; null: none. `under`: the key of the group that has them.
const config::Schema* picked(const Node& group, const config::Schema& schema, const std::string& under) {
  for (const config::Schema::ChoiceKey& choice : schema.choices()) {
    const Node* name = group.find(schema.keys()[choice.key].name());
    const config::CatalogEntry* entry = name == nullptr ? nullptr : choice.catalog->find(name->text);
    if (entry != nullptr && choice.under == under) return entry->schema;
  }
  return nullptr;
}

/// Sorts keys as the job declares them; options of a picked entry stand behind the key that picks it.
void sort_as_declared(Node& group, const config::Schema& schema) {
  const config::Schema* options = picked(group, schema, "");
  const auto place = [&](const Node& part) {
    const auto found = std::ranges::find(schema.keys(), part.key, &config::Key::name);
    if (found != schema.keys().end()) return std::pair(part.key == "config" ? 1 : found - schema.keys().begin(), 0L);
    if (part.key == "config") return std::pair(1L, 0L);
    if (options == nullptr) return std::pair(0L, 1L);
    return std::pair(0L,
                     1 + (std::ranges::find(options->keys(), part.key, &config::Key::name) - options->keys().begin()));
  };
  std::ranges::stable_sort(group.parts, {}, place);
  for (Node& part : group.parts) {
    const config::Key* key = schema.find(part.key);
    const config::Schema* inner = key != nullptr ? inside(*key) : picked(group, schema, part.key);
    if (inner != nullptr && part.kind == Node::Kind::map) sort_as_declared(part, *inner);
  }
}

std::string shortened(std::string text) {
  if (text.size() > kLongest) text = text.substr(0, kLongest - 3) + "...";
  return text;
}

/// Breaks text into lines of a comment.
std::string commented(const std::string& text) {
  const size_t indent = text.find_first_not_of(" -");
  std::string lines = wrapped(text.substr(indent), kRoom - indent, indent + 2);
  return "# " + text.substr(0, indent) + std::regex_replace(lines, std::regex("\n  "), "\n# ") + "\n";
}

/// Groups keys that have the same reason, in the order of their first ones.
std::vector<std::pair<std::string, std::vector<std::string>>> by_reason(const std::vector<MovedJob::Told>& told) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const auto& [theirs, why] : told) {
    const auto known = std::ranges::find(groups, why, [](const auto& group) { return group.first; });
    if (known != groups.end())
      known->second.push_back(theirs);
    else
      groups.push_back({why, {theirs}});
  }
  return groups;
}

/// Returns whether a row names a key within this map.
bool has_rows_within(const std::vector<const Table*>& tables, const std::string& dotted) {
  for (const Table* table : tables)
    for (const Row& row : *table)
      for (const std::string& name : row.names)
        if (name.starts_with(dotted + ".")) return true;
  return false;
}

bool fits(const std::string& pattern, const std::string& dotted) {
  if (pattern.ends_with('*')) return dotted.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == dotted;
}

const Row* row_of(const std::vector<const Table*>& tables, const std::string& dotted) {
  for (const Table* table : tables)
    for (const Row& row : *table)
      for (const std::string& name : row.names)
        if (fits(name, dotted)) return &row;
  return nullptr;
}

void move_group(Moving& job, const Node& group, const std::string& under, const std::vector<const Table*>& tables,
                std::vector<std::string>& unknown) {
  for (const Node& part : group.parts) {
    const std::string dotted = under.empty() ? part.key : under + "." + part.key;
    if (!job.has(dotted)) continue;
    const Row* row = row_of(tables, dotted);
    if (part.kind == Node::Kind::map && (row == nullptr || has_rows_within(tables, dotted))) {
      move_group(job, part, dotted, tables, unknown);
    } else if (row != nullptr) {
      job.begin(dotted);
      if (row->move) row->move(job, dotted, part);
    } else {
      unknown.push_back(dotted);
    }
  }
}

}  // namespace

const Node* Moving::given(std::string_view dotted) const {
  const auto other = std::ranges::find(kOtherNames, dotted, &decltype(kOtherNames)::value_type::first);
  const Node* own = other == kOtherNames.end() ? nullptr : theirs_.find(dotted);
  if (other != kOtherNames.end() && (own == nullptr || own->kind == Node::Kind::null)) dotted = other->second;
  const Node* node = &theirs_;
  while (node != nullptr && !dotted.empty()) {
    // Keys of theirs may have dots.
    if (const Node* whole = node->find(dotted)) {
      node = whole;
      break;
    }
    const size_t dot = dotted.find('.');
    if (dot == std::string_view::npos) return nullptr;
    node = node->find(dotted.substr(0, dot));
    dotted.remove_prefix(dot + 1);
  }
  if (node == nullptr || node->kind == Node::Kind::null) return nullptr;
  return node->kind == Node::Kind::scalar && node->text.empty() ? nullptr : node;
}

std::string Moving::text(std::string_view dotted) const {
  const Node* node = given(dotted);
  return node != nullptr && node->kind == Node::Kind::scalar ? node->text : "";
}

double Moving::number(std::string_view dotted, double otherwise) const {
  const std::string written = text(dotted);
  double value = 0;
  const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), value);
  return error == std::errc() && end == written.data() + written.size() && !written.empty() ? value : otherwise;
}

bool Moving::is_on(std::string_view dotted) const {
  const Node* node = given(dotted);
  return node != nullptr && !is_off(*node);
}

void Moving::set(const std::string& ours, const std::string& value, const std::string& note) {
  if (!lines_.contains(ours)) order_.push_back(ours);
  lines_[ours] = {value, note};
  if (!current_.empty()) setters_.emplace(current_, ours);
}

bool Moving::has_line(const std::string& top) const {
  return std::ranges::any_of(setters_, [&](const auto& set) { return set.first == top && sets(set.second); });
}

bool Moving::tells(const std::string& top) const {
  const auto is_it = [&](const std::string& dotted) { return dotted == top || dotted.starts_with(top + "."); };
  return std::ranges::any_of(told_keys_, is_it);
}

void Moving::set_text(const std::string& ours, const std::string& value, const std::string& note) {
  set(ours, config::to_flow(text_node(value)), note);
}

void Moving::otherwise(const std::string& ours, const std::string& value, const std::string& note) {
  if (!sets(ours)) set(ours, value, note);
}

std::string Moving::value_of(const std::string& ours) const {
  const auto found = lines_.find(ours);
  return found == lines_.end() ? "" : found->second.value;
}

void Moving::tell(std::string_view dotted, const std::string& why) {
  const Node* value = given(dotted);
  tell(std::string(dotted), value == nullptr ? "" : config::to_flow(*value), why);
}

void Moving::tell(const std::string& part, const std::string& value, const std::string& why) {
  if (told_keys_.insert(part).second) told_.push_back({part + (value.empty() ? "" : ": " + shortened(value)), why});
}

void Moving::remark(const std::string& what) {
  if (std::ranges::find(remarks_, what) == remarks_.end()) remarks_.push_back(what);
}

void Moving::add(const Moving& part) {
  for (const std::string& ours : part.order_)
    if (const auto line = part.lines_.find(ours); line != part.lines_.end())
      set(ours, line->second.value, line->second.note);
  add_told(part);
}

void Moving::add_told(const Moving& part) {
  for (const MovedJob::Told& told : part.told_)
    if (std::ranges::find(told_, told.theirs, &MovedJob::Told::theirs) == told_.end()) told_.push_back(told);
  told_keys_.insert(part.told_keys_.begin(), part.told_keys_.end());
  for (const std::string& what : part.remarks_) remark(what);
}

Node Moving::tree() const {
  Node root;
  root.kind = Node::Kind::map;
  place(root, "schema", config::document("1", "schema"));
  for (const std::string& ours : order_)
    if (const auto line = lines_.find(ours); line != lines_.end())
      place(root, ours, config::document(line->second.value, ours));
  sort_as_declared(root, job_schema());
  return root;
}

std::vector<std::pair<std::string, std::string>> Moving::settings() const {
  std::vector<std::pair<std::string, std::string>> found;
  for (const std::string& ours : order_)
    if (const auto line = lines_.find(ours); line != lines_.end()) found.emplace_back(ours, line->second.value);
  return found;
}

MovedJob Moving::finish(const std::string& tool, const std::string& name, const std::vector<std::string>& unknown,
                        const std::vector<std::string>& unchanging) const {
  MovedJob job{.tool = tool,
               .yaml = {},
               .moved = {},
               .told = told_,
               .guessed = {},
               .unchanging = unchanging,
               .unknown = unknown};
  const auto is_among = [](const std::vector<std::string>& keys, const std::string& key) {
    return std::ranges::find(keys, key) != keys.end();
  };
  for (const std::string& ours : order_)
    if (const auto line = lines_.find(ours); line != lines_.end() && line->second.note.starts_with("a guess"))
      job.guessed.push_back(ours + ": " + line->second.value);
  for (const Node& part : theirs_.parts)
    if (has(part.key) && part.key != "program" && !told_keys_.contains(part.key) && !is_among(unknown, part.key) &&
        !is_among(unchanging, part.key))
      job.moved.push_back(part.key);
  job.yaml = "# Moved from " + name + " (" + tool + ") by `gputrain import`.\n" +
             config::to_yaml(tree(), [&](const std::string& dotted) {
               const auto line = lines_.find(dotted);
               return line == lines_.end() ? std::string() : line->second.note;
             });
  for (const std::string& remark : remarks_)  // a command stays on one line, to be copied
    job.yaml += remark.starts_with('`') ? "# " + remark + "\n" : commented(remark);
  if (!told_.empty()) job.yaml += "#\n# Keys of " + name + " that have no line above, and why:\n";
  for (const auto& [why, keys] : by_reason(told_)) {
    std::string list;
    for (const std::string& key : keys) list += (list.empty() ? "" : "; ") + key;
    job.yaml += commented("- " + list) + commented("    " + why);
  }
  std::string unneeded;
  for (const std::string& key : unchanging)
    unneeded += (unneeded.empty() ? "" : "; ") + key + ": " + shortened(config::to_flow(*given(key)));
  if (!unchanging.empty())
    job.yaml += "#\n# Keys of " + name + " that change nothing here:\n" + commented("- " + unneeded);
  if (!unknown.empty()) job.yaml += "#\n# Keys of " + name + " that gputrain does not know:\n";
  for (const std::string& key : unknown)
    job.yaml += "# - " + key + ": " + shortened(config::to_flow(*given(key))) + "\n";
  return job;
}

bool is_off(const Node& value) {
  if (value.kind == Node::Kind::null) return true;
  if (value.kind != Node::Kind::scalar) return value.parts.empty();
  constexpr std::array kOff{"", "false", "False", "no", "none", "None", "null", "0", "0.0"};
  return std::ranges::find(kOff, value.text) != kOff.end();
}

Row to(std::vector<std::string> names, const std::string& ours) {
  return by(std::move(names), [ours](Moving& job, const std::string&, const Node& value) {
    if (value.kind == Node::Kind::scalar) {
      job.set(ours, config::to_flow(value));
    } else {
      Node bare = value;
      bare.key.clear();
      job.set(ours, config::to_flow(bare));
    }
  });
}

Row flag(std::vector<std::string> names, const std::string& ours, const std::string& value) {
  return by(std::move(names), [ours, value](Moving& job, const std::string&, const Node& given) {
    if (!is_off(given)) job.set(ours, value);
  });
}

Row to_option(std::vector<std::string> names, const std::string& task, const std::string& ours) {
  return by(std::move(names), [task, move = to({}, ours).move](Moving& job, const std::string& key, const Node& value) {
    job.otherwise("task.type", task, "");
    move(job, key, value);
  });
}

Row words(std::vector<std::string> names, const std::string& ours, const Words& known, const std::string& otherwise) {
  return by(std::move(names), [ours, known, otherwise](Moving& job, const std::string& dotted, const Node& value) {
    const auto found = std::ranges::find(known, std::string_view(value.text), &Words::value_type::first);
    if (value.kind != Node::Kind::scalar || found == known.end()) {
      job.tell(dotted, otherwise);
    } else if (!found->second.empty()) {
      job.set(ours, std::string(found->second));
    }
  });
}

Row told(std::vector<std::string> names, const std::string& why) {
  return by(std::move(names), [why](Moving& job, const std::string& dotted, const Node& value) {
    if (!is_off(value)) job.tell(dotted, why);
  });
}

Row read_later(std::vector<std::string> names, const std::string& meaning) { return {std::move(names), {}, meaning}; }

Row by(std::vector<std::string> names, Row::Move move) { return {std::move(names), std::move(move)}; }

std::vector<std::string> move_all(Moving& job, const Node& theirs, const std::vector<const Table*>& tables) {
  std::vector<std::string> unknown;
  move_group(job, theirs, "", tables, unknown);
  job.begin("");
  return unknown;
}

}  // namespace gputrain::app::foreign
