#include "gputrain/config/reference.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "gputrain/config/names.hpp"
#include "gputrain/config/value_type.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/lower_case.hpp"
#include "gputrain/core/wrap.hpp"
#include "key_index.hpp"
#include "yaml/scalar.hpp"
#include "yaml/write.hpp"

namespace gputrain::config {
namespace {

using Kind = ValueType::Kind;
using Row = std::array<std::string, 6>;  // key, type, default, unit, help, whether it may change when a run resumes

constexpr size_t kLongestDefault = 24;  // on a terminal
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
      if (!type.takes_one) return list_type_text(*type.inner, key);
      return (key_of_text(*type.inner) == nullptr ? "" : "text | ") + type_text(*type.inner, key) + " | list";
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
  return is_word ? node.text : to_flow(node);
}

std::string change_text(Change change) {
  return change == Change::safe ? "yes" : change == Change::needs_accept ? "`--accept`" : "no";
}

/// A place where an entry of a catalog is picked.
struct Pick {
  const AnyCatalog* catalog;
  std::string key, options;  // options: the group with the entry's keys; empty: they stand beside the key
  Change change;
};

class Table {
 public:
  /// `change` counts for keys that do not say whether they may change.
  void add_group(const Schema& schema, const void* defaults, const std::string& prefix,
                 Change change = Change::refused) {
    for (const Key& key : schema.keys()) {
      const Schema::ChoiceKey* choice = schema.choice_of(key);
      const Schema* group = group_inside(key.type());
      const Schema* elements = group_of_elements(key.type());
      const Change own = key.change().value_or(change);
      const std::string name = prefix + key.name();
      if (choice != nullptr) {
        add_choice(*choice, key, defaults, prefix, own);
      } else if (group != nullptr) {
        const bool is_optional = key.type().kind == Kind::optional;
        const std::string fallback = key.is_required() ? "required" : is_optional ? default_text(key, defaults) : "";
        rows_.push_back({name, is_optional ? "group | null" : "group", fallback, "", key.help(),
                         is_optional ? change_text(own) : ""});
        const std::shared_ptr<void> inner = group->create();
        add_group(*group, is_optional ? inner.get() : key.locate(defaults), name + ".", own);
      } else {
        rows_.push_back(
            {name, type_text(key.type(), key), default_text(key, defaults), key.unit(), key.help(), change_text(own)});
        if (elements != nullptr) add_group(*elements, elements->create().get(), name + "[].", own);
      }
    }
    if (const Key* pattern = schema.pattern()) {
      rows_.push_back({prefix + pattern->name(), type_text(*pattern->type().inner, *pattern), "", pattern->unit(),
                       pattern->help(), change_text(pattern->change().value_or(change))});
    }
  }

  /// Keeps only one key, or one group with its keys.
  void keep(std::string_view name) {
    const std::string inside = std::string(name) + ".", element = std::string(name) + "[";
    std::erase_if(rows_, [&](const Row& row) {
      return row[0] != name && !row[0].starts_with(inside) && !row[0].starts_with(element);
    });
  }

  std::string text(size_t width) {
    for (Row& row : rows_)
      if (row[2].size() > kLongestDefault) row[2].replace(kLongestDefault - 3, std::string::npos, "...");
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
      for (size_t i = 0; i < widths.size(); ++i)
        if (widths[i] > 0) line += row[i] + std::string(widths[i] - row[i].size(), ' ');
      line += wrapped(row[4], width - before_help, before_help);
      lines += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    };
    add_line(head);
    for (const Row& row : rows_) add_line(row);
    return lines;
  }

  bool is_empty() const { return rows_.empty(); }
  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<Pick>& picks() const { return picks_; }

 private:
  std::string list(size_t width) const {
    constexpr size_t kIndent = 4;
    std::string lines;
    for (const auto& [key, type, fallback, unit, help, change] : rows_) {
      std::string head = key + "  " + type;
      if (!unit.empty()) head += ", " + unit;
      if (!fallback.empty()) head += fallback == "required" ? "  required" : "  default " + fallback;
      const std::string indent(kIndent, ' ');
      lines += wrapped(head, width - 2 * kIndent, 2 * kIndent) + "\n" + indent +
               wrapped(help, width - kIndent, kIndent) + "\n";
    }
    return lines;
  }

  void add_choice(const Schema::ChoiceKey& choice, const Key& key, const void* defaults, const std::string& prefix,
                  Change change) {
    const std::vector<std::string> names = choice.catalog->names();
    const std::string& kind = choice.catalog->kind();
    const std::string article = std::string_view("aeiou").find(kind[0]) < 5 ? "an " : "a ";
    rows_.push_back(
        {prefix + key.name(), joined(names).size() <= kLongestNames ? joined(names) : "name of " + article + kind,
         default_text(key, defaults), "", key.help() + " (gputrain list " + kind + ")", change_text(change)});
    rows_.push_back({prefix + (choice.under.empty() ? "*" : choice.under), "options", "", "",
                     "of that " + kind + " (gputrain describe " + kind + " NAME)", ""});
    picks_.push_back({choice.catalog, prefix + key.name(), choice.under.empty() ? "" : prefix + choice.under, change});
  }

  std::vector<Row> rows_;
  std::vector<Pick> picks_;
};

/// Text for a cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string escaped;
  bool is_code = false;
  for (const char c : text) {
    if (c == '`') is_code = !is_code;
    if (c == '|' || (!is_code && (c == '*' || c == '<'))) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string code(const std::string& text) { return text.empty() ? "" : cell("`" + text + "`"); }

std::string markdown_table(const std::vector<Row>& rows) {
  std::string lines = "| key | type | default | resume | meaning |\n|-|-|-|-|-|\n";
  for (const auto& [key, type, fallback, unit, help, change] : rows) {
    lines += "| " + code(key) + " | " + cell(type + (unit.empty() ? "" : ", " + unit)) + " | " +
             (fallback == "required" ? fallback : code(fallback)) + " | " + change + " | " + cell(help) + " |\n";
  }
  return lines + "\n";
}

/// The entries of a catalog, and the keys of each; entries with the same keys share a table. Adds what these keys pick.
std::string catalog_section(const AnyCatalog& catalog, std::vector<Pick>& picks) {
  std::string keys, options;
  Change change = Change::refused;
  for (const Pick& pick : picks) {
    if (pick.catalog != &catalog) continue;
    keys += (keys.empty() ? "" : ", ") + code(pick.key);
    options = pick.options;
    change = pick.change;
  }
  std::string section = "## " + catalog.kind() + "s\n\nPicked by " + keys + ". Options stand " +
                        (options.empty() ? "beside that key" : "in " + code(options)) + ".\n";
  section += "\n| name | what it is |\n|-|-|\n";
  std::vector<std::pair<std::vector<Row>, std::string>> tables;  // rows, names
  for (const std::string& name : catalog.names()) {
    const CatalogEntry& entry = *catalog.find(name);
    section += "| " + code(name) + " | " + cell(entry.help) + " |\n";
    Table table;
    table.add_group(*entry.schema, entry.schema->create().get(), {}, change);
    if (table.is_empty()) continue;
    picks.insert(picks.end(), table.picks().begin(), table.picks().end());
    const auto same = std::ranges::find(tables, table.rows(), [](const auto& one) { return one.first; });
    if (same != tables.end())
      same->second += ", " + code(name);
    else
      tables.emplace_back(table.rows(), code(name));
  }
  section += "\n";
  for (const auto& [rows, names] : tables) section += "### " + names + "\n\n" + markdown_table(rows);
  return section;
}

/// Links to the sections of a page.
std::string links_to_sections(const std::string& page) {
  std::string links;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("## ")) continue;
    const std::string name = line.substr(3);
    std::string anchor;
    for (const char c : name) anchor += c == ' ' ? '-' : lower_case(c);
    links += (links.empty() ? "" : ", ") + ("[" + name + "](#" + anchor + ")");
  }
  return links;
}

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
  std::vector<std::string> names;
  for (const Row& row : table.rows())
    if (row[0].find("[]") == std::string::npos) names.push_back(row[0]);
  return names;
}

std::string keys_page(const Schema& schema) {
  Table table;
  table.add_group(schema, schema.create().get(), {});
  std::vector<std::pair<std::string, std::vector<Row>>> sections{{"At the top", {}}};
  for (const Row& row : table.rows()) {
    const std::string top = row[0].substr(0, row[0].find_first_of(".["));
    const bool has_keys = std::ranges::any_of(table.rows(), [&](const Row& other) {
      return other[0].starts_with(top + ".") || other[0].starts_with(top + "[");
    });
    if (has_keys && sections.back().first != top) sections.emplace_back(top, std::vector<Row>{});
    (has_keys ? sections.back() : sections.front()).second.push_back(row);
  }
  std::string page;
  for (const auto& [name, rows] : sections) page += "## " + name + "\n\n" + markdown_table(rows);
  std::vector<Pick> picks = table.picks();
  for (const AnyCatalog* catalog : catalogs_of(schema)) page += catalog_section(*catalog, picks);
  page.pop_back();
  return "On this page: " + links_to_sections(page) + ".\n\n" + page;
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
