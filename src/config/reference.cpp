#include "gputrain/config/reference.hpp"

#include <algorithm>
#include <array>

#include "gputrain/config/names.hpp"
#include "gputrain/config/value_type.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/wrap.hpp"
#include "key_index.hpp"
#include "yaml/scalar.hpp"
#include "yaml/write.hpp"

namespace gputrain::config {
namespace {

using Kind = ValueType::Kind;
using Row = std::array<std::string, 5>;  // key, type, default, unit, help

constexpr size_t kLongestDefault = 24;
constexpr size_t kLongestNames = 40;
constexpr size_t kLeastHelp = 40;  // columns; with less, the help is below its key

std::string limits_suffix(const Key::Limits& limits) {
  if (limits.low && limits.high) {
    return std::string(" in ") + (limits.low_is_open ? "(" : "[") + plain_number(*limits.low) + ", " +
           plain_number(*limits.high) + (limits.high_is_open ? ")" : "]");
  }
  if (limits.low) return (limits.low_is_open ? " > " : " >= ") + plain_number(*limits.low);
  if (limits.high) return (limits.high_is_open ? " < " : " <= ") + plain_number(*limits.high);
  return {};
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " | ") + name;
  return text;
}

std::string list_type_text(const ValueType& type, const Key& key);

std::string type_text(const ValueType& type, const Key& key) {
  switch (type.kind) {
    case Kind::boolean:
      return "true | false";
    case Kind::integer:
      return "integer" + limits_suffix(key.limits());
    case Kind::number:
      return "number" + limits_suffix(key.limits());
    case Kind::string:
      return key.allowed().empty() ? "text" : joined(key.allowed());
    case Kind::length:
      return "length" + limits_suffix(key.limits());
    case Kind::duration:
      return "duration" + limits_suffix(key.limits());
    case Kind::automatic:
      return type_text(*type.inner, key) + " | auto";
    case Kind::optional:
      return type_text(*type.inner, key) + " | null";
    case Kind::list:
      return type.takes_one ? type_text(*type.inner, key) + " | list" : list_type_text(*type.inner, key);
    case Kind::map:
      return "map of " + type_text(*type.inner, key);
    case Kind::group:
      return "group";
    case Kind::choice:
      return "name";
  }
  return {};
}

std::string list_type_text(const ValueType& inner, const Key& key) {
  const Key::Limits& limits = key.limits();
  const std::string count = limits.fewest && limits.fewest == limits.most ? std::to_string(*limits.fewest) + " " : "";
  std::string parts = type_text(inner, key);
  if (inner.kind != Kind::boolean && key.allowed().empty()) parts.insert(std::min(parts.find(' '), parts.size()), "s");
  return "list of " + count + parts;
}

std::string default_text(const Key& key, const void* defaults) {
  if (key.is_required()) return "required";
  const Node node = node_of(key.type(), key.locate(defaults));
  const bool is_word =
      node.kind == Node::Kind::scalar && !node.text.empty() && node.text.find('\n') == std::string::npos;
  std::string text = is_word ? node.text : to_flow(node);
  return text.size() > kLongestDefault ? text.substr(0, kLongestDefault - 3) + "..." : text;
}

class Table {
 public:
  void add_group(const Schema& schema, const void* defaults, const std::string& prefix) {
    for (const Key& key : schema.keys()) {
      const Schema::ChoiceKey* choice = schema.choice_of(key);
      const Schema* group = group_inside(key.type());
      if (choice != nullptr) {
        add_choice(*choice, key, defaults, prefix);
      } else if (group != nullptr) {
        const bool is_optional = key.type().kind == Kind::optional;
        const std::string fallback = key.is_required() ? "required" : is_optional ? default_text(key, defaults) : "";
        rows_.push_back({prefix + key.name(), is_optional ? "group | null" : "group", fallback, "", key.help()});
        const std::shared_ptr<void> inner = group->create();
        add_group(*group, is_optional ? inner.get() : key.locate(defaults), prefix + key.name() + ".");
      } else {
        rows_.push_back(
            {prefix + key.name(), type_text(key.type(), key), default_text(key, defaults), key.unit(), key.help()});
      }
    }
    if (const Key* pattern = schema.pattern()) {
      rows_.push_back({prefix + pattern->name(), type_text(*pattern->type().inner, *pattern), "", pattern->unit(),
                       pattern->help()});
    }
  }

  /// Keeps only one key, or one group with its keys.
  void keep(std::string_view name) {
    const std::string inside = std::string(name) + ".";
    std::erase_if(rows_, [&](const Row& row) { return row[0] != name && !row[0].starts_with(inside); });
  }

  std::string text(size_t width) const {
    const Row head{"KEY", "TYPE", "DEFAULT", "UNIT", "MEANING"};
    const bool has_units = std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return !row[3].empty(); });
    std::array<size_t, 4> widths{};
    size_t before_help = 0;
    for (size_t i = 0; i < widths.size(); ++i) {
      if (i == 3 && !has_units) continue;
      widths[i] = head[i].size() + 2;
      for (const Row& row : rows_) widths[i] = std::max(widths[i], row[i].size() + 2);
      before_help += widths[i];
    }
    if (before_help + kLeastHelp > width) return list(width);
    std::string lines;
    const auto add_line = [&](const Row& row) {
      std::string line;
      for (size_t i = 0; i < widths.size(); ++i) {
        if (widths[i] > 0) line += row[i] + std::string(widths[i] - row[i].size(), ' ');
      }
      line += wrapped(row[4], width - before_help, before_help);
      lines += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    };
    add_line(head);
    for (const Row& row : rows_) add_line(row);
    return lines;
  }

  bool is_empty() const { return rows_.empty(); }

  std::vector<std::string> keys() const {
    std::vector<std::string> keys;
    for (const Row& row : rows_) keys.push_back(row[0]);
    return keys;
  }

 private:
  std::string list(size_t width) const {
    constexpr size_t kIndent = 4;
    std::string lines;
    for (const auto& [key, type, fallback, unit, help] : rows_) {
      std::string head = key + "  " + type;
      if (!unit.empty()) head += ", " + unit;
      if (!fallback.empty()) head += fallback == "required" ? "  required" : "  default " + fallback;
      const std::string indent(kIndent, ' ');
      lines += wrapped(head, width - 2 * kIndent, 2 * kIndent) + "\n" + indent +
               wrapped(help, width - kIndent, kIndent) + "\n";
    }
    return lines;
  }

  void add_choice(const Schema::ChoiceKey& choice, const Key& key, const void* defaults, const std::string& prefix) {
    const std::vector<std::string> names = choice.catalog->names();
    const std::string& kind = choice.catalog->kind();
    rows_.push_back({prefix + key.name(), joined(names).size() <= kLongestNames ? joined(names) : "name of a " + kind,
                     default_text(key, defaults), "", key.help() + " (gputrain list " + kind + ")"});
    rows_.push_back({prefix + (choice.under.empty() ? "*" : choice.under), "options", "", "",
                     "of that " + kind + " (gputrain describe " + kind + " NAME)"});
  }

  std::vector<Row> rows_;
};

void collect(const Schema& schema, std::vector<const AnyCatalog*>& found, std::vector<const Schema*>& seen) {
  if (std::find(seen.begin(), seen.end(), &schema) != seen.end()) return;
  seen.push_back(&schema);
  for (const Key& key : schema.keys()) {
    const ValueType* type = &key.type();
    while (type->inner != nullptr) type = type->inner;
    if (type->kind == Kind::group) collect(type->schema(), found, seen);
    const Schema::ChoiceKey* choice = schema.choice_of(key);
    if (choice == nullptr) continue;
    if (std::find(found.begin(), found.end(), choice->catalog) == found.end()) found.push_back(choice->catalog);
    for (const CatalogEntry& entry : choice->catalog->entries()) collect(*entry.schema, found, seen);
  }
}

}  // namespace

std::vector<const AnyCatalog*> catalogs_of(const Schema& schema) {
  std::vector<const AnyCatalog*> found;
  std::vector<const Schema*> seen;
  collect(schema, found, seen);
  return found;
}

std::string list_text(const AnyCatalog& catalog, size_t width) {
  size_t before_help = 0;
  for (const CatalogEntry& entry : catalog.entries()) before_help = std::max(before_help, entry.name.size() + 2);
  std::string text;
  for (const std::string& name : catalog.names()) {
    text += name + std::string(before_help - name.size(), ' ') +
            wrapped(catalog.find(name)->help, width - std::min(width, before_help), before_help) + "\n";
  }
  return text;
}

std::string describe_text(const Schema& schema, size_t width) {
  Table table;
  table.add_group(schema, schema.create().get(), {});
  const std::string head = schema.summary().empty() ? "" : wrapped(schema.summary(), width, 0) + "\n\n";
  return head + (table.is_empty() ? "No options.\n" : table.text(width));
}

std::string describe_text(const Schema& schema, size_t width, std::string_view key) {
  Table table;
  table.add_group(schema, schema.create().get(), {});
  table.keep(key);
  return table.is_empty() ? "" : table.text(width);
}

std::vector<std::string> key_names(const Schema& schema) {
  Table table;
  table.add_group(schema, schema.create().get(), {});
  return table.keys();
}

std::string describe_text(const AnyCatalog& catalog, std::string_view name, size_t width) {
  const CatalogEntry* entry = catalog.find(name);
  if (entry == nullptr) {
    const std::string near = did_you_mean(name, catalog.names());
    throw Error(ExitCode::usage, {.what = "no " + catalog.kind() + " is named " + shown(name),
                                  .hint = (near.empty() ? "" : near + " ") + "there is " + either(catalog.names())});
  }
  Table table;
  table.add_group(*entry->schema, entry->schema->create().get(), {});
  return wrapped(catalog.kind() + " " + entry->name + ": " + entry->help, width, 0) + "\n\n" +
         (table.is_empty() ? "No options.\n" : table.text(width));
}

}  // namespace gputrain::config
