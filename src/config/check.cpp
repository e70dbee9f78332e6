#include "check.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <utility>

#include "gputrain/config/names.hpp"
#include "gputrain/core/lower_case.hpp"
#include "values/expectation.hpp"
#include "yaml/scalar.hpp"

namespace gputrain::config {
namespace {

constexpr std::string_view kVarsKey = "vars";

bool takes_null(const ValueType& type) { return type.kind == ValueType::Kind::optional; }

bool is_metric_name(std::string_view name) {
  const size_t slash = name.find('/');
  return slash != std::string_view::npos && slash > 0 && slash + 1 < name.size();
}

std::string letters_of(std::string_view word) {
  std::string letters;
  for (const char c : word) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) letters += lower_case(c);
  }
  return letters;
}

/// Returns a class of transformers without what it is for: "Llama" of "LlamaForCausalLM".
std::string architecture_of(const std::string& name) {
  for (const std::string_view end : {"For", "LMHead", "Model"})
    if (const size_t at = name.rfind(end);
        at != std::string::npos && at > 0 && std::isupper(static_cast<unsigned char>(name[0])) != 0)
      return name.substr(0, at);
  return name;
}

/// Returns a hint, for `type: llama`, if exactly one entry's help has a word with this prefix.
std::string told_by_help(const AnyCatalog& catalog, const std::string& name) {
  constexpr size_t kFewestLetters = 3;
  const std::string wanted = letters_of(name);
  if (wanted.size() < kFewestLetters) return {};
  std::vector<std::string> telling;
  for (const std::string& entry : catalog.names()) {
    std::istringstream words(catalog.find(entry)->help);
    for (std::string word; words >> word;) {
      if (!letters_of(word).starts_with(wanted)) continue;
      telling.push_back("did you mean " + shown(entry) + ", " + catalog.find(entry)->help + "?");
      break;
    }
  }
  return telling.size() == 1 ? telling[0] : "";
}

std::string example(const Key& key);

std::string example(const Schema& schema) {
  std::string keys;
  for (const Key& key : schema.keys()) {
    if (!key.is_required()) continue;
    const Schema::ChoiceKey* choice = schema.choice_of(key);
    keys += keys.empty() ? "" : ", ";
    keys += choice == nullptr ? example(key) : key.name() + ": ...";
  }
  return "{" + (keys.empty() ? "..." : keys) + "}";
}

/// Returns the shortest text for a required key: `data: {train: {path: ..., format: ...}}`.
std::string example(const Key& key) {
  const Schema* group = group_inside(key.type());
  return key.name() + ": " + (group == nullptr ? "..." : example(*group));
}

}  // namespace

Checker::Checker(const Schema& schema, const Node& job, Reading reading, Problems& problems)
    : schema_(schema),
      job_(job),
      reading_(std::move(reading)),
      problems_(problems),
      unknown_keys_(schema, job),
      misses_values_(reading_.gaps.keys) {}

std::shared_ptr<void> Checker::run() {
  if (const Node* vars = job_.find(kVarsKey)) {
    if (vars->kind != Node::Kind::map && vars->kind != Node::Kind::null) {
      problems_.add(vars->location, "vars must be a group of names and values, not " + description(*vars));
    }
  }
  std::shared_ptr<void> spec = schema_.create();
  read_group(schema_, {&job_, {}, job_.location, {"vars", "include"}}, spec.get());
  for (const PendingCheck& check : pending_checks_) run_check(check);
  return spec;
}

void Checker::try_out(const Schema& owner, const Key& key, const Node& value, const std::string& group) {
  Node map{.kind = Node::Kind::map};
  map.parts.push_back(value);
  map.parts.front().key = key.name();
  Group place{&map, group, value.location};
  const std::shared_ptr<void> spec = owner.create();
  if (const Schema::ChoiceKey* choice = owner.choice_of(key)) {
    pick(*choice, key, place, static_cast<const Choice*>(key.locate(spec.get()))->name);
  } else {
    read_key(key, place, spec.get());
  }
}

void Checker::read_group(const Schema& schema, Group group, void* spec) {
  const size_t problems_before = problems_.count();
  if (group.map != nullptr) origins_[group.dotted + "."] = group.location;
  const std::optional<Node> inherited = with_inherited(schema, group.map);
  if (inherited) group.map = &*inherited;
  read_keys(schema, group, spec);
  if (!schema.is_part()) note_unknown(group);
  if (problems_.count() == problems_before) pending_checks_.push_back({&schema, group.dotted, spec});
}

void Checker::read_keys(const Schema& schema, Group& group, void* spec) {
  for (const Key& key : schema.keys()) {
    group.known.insert(key.name());
    if (const Schema::ChoiceKey* choice = schema.choice_of(key)) {
      read_choice(*choice, key, group, spec);
    } else {
      read_key(key, group, spec);
    }
  }
  if (schema.pattern() != nullptr) read_pattern(*schema.pattern(), group, spec);
}

void Checker::read_key(const Key& key, Group& group, void* spec) {
  const Node* part = group.map == nullptr ? nullptr : group.map->find(key.name());
  const bool is_group = key.type().kind == ValueType::Kind::group;  // an empty `train:` is an empty group
  const bool is_null = part != nullptr && part->kind == Node::Kind::null && (part->removes || is_group);
  if (part == nullptr || (is_null && !takes_null(key.type()))) {
    read_absent(key, group, part, spec);
  } else {
    read_value({key, join(group.dotted, key.name()), key.type()}, key.type(), *part, key.locate(spec));
  }
}

void Checker::read_absent(const Key& key, const Group& group, const Node* removed, void* spec) {
  const std::string dotted = join(group.dotted, key.name());
  const SourceLocation& location = removed != nullptr ? removed->location : group.location;
  if (key.is_required()) {
    if (reading_.gaps.keys) return;
    problems_.add(location, "the key " + shown(dotted) + " is missing", key.help() + "; write `" + example(key) + "`");
  } else if (key.type().kind == ValueType::Kind::group) {
    read_group(key.type().schema(), {nullptr, dotted, location}, key.locate(spec));
  }
}

void Checker::read_pattern(const Key& key, Group& group, void* spec) {
  if (group.map == nullptr) return;
  void* target = key.locate(spec);
  key.type().clear(target);
  const ValueType& inner = *key.type().inner;
  for (const Node& part : group.map->parts) {
    if (!is_metric_name(part.key) || !group.known.insert(part.key).second || part.removes) continue;
    read_value({key, join(group.dotted, part.key), inner}, inner, part, key.type().part_to_fill(target, part.key));
  }
}

void Checker::note_unknown(const Group& group) {
  if (group.map == nullptr) return;
  const std::vector<std::string> siblings(group.known.begin(), group.known.end());
  for (const Node& part : group.map->parts) {
    if (part.removes || group.known.contains(part.key)) continue;
    if (is_recorded(part)) {
      const bool says_nothing = part.kind == Node::Kind::null || part.text == "false";
      if (!says_nothing) left_out_.push_back(join(group.dotted, part.key));
      continue;
    }
    if (!reading_.advises) {
      problems_.add(part.key_location, "unknown key " + shown(part.key));
      continue;
    }
    if (group.guesses && !unknown_keys_.is_renamed(part, group.dotted)) continue;
    misses_values_ = true;
    unknown_keys_.note(part, group.dotted, siblings, group.picked, problems_);
  }
}

bool Checker::is_recorded(const Node& part) const {
  const std::string& record = reading_.record;
  return !record.empty() && part.key_location.source && part.key_location.source->name == record;
}

void Checker::run_check(const PendingCheck& check) {
  // The check may depend on a key that is misspelt or whose value is unknown, so it would only mislead.
  if (!check.schema->check() || misses_values_) return;
  SpecIssues issues;
  check.schema->check()(check.spec, issues);
  for (const SpecIssues::Issue& issue : issues.all()) {
    const std::string dotted = issue.key.empty() ? check.dotted : join(check.dotted, issue.key);
    problems_.add(location_of(dotted), (dotted.empty() ? "" : dotted + ": ") + issue.what, issue.hint);
  }
}

/// Returns the place of the innermost given part of `dotted`.
SourceLocation Checker::location_of(const std::string& dotted) const {
  const Node* node = find_dotted(job_, dotted);
  if (node != nullptr && (node == &job_ || !node->location.is_default())) {
    const bool has_key = node->kind == Node::Kind::map && node->key_location.source;
    return has_key ? node->key_location : node->location;
  }
  const size_t dot = dotted.rfind('.');
  return dotted.empty() ? job_.location : location_of(dotted.substr(0, dot == std::string::npos ? 0 : dot));
}

// Choices.

void Checker::read_choice(const Schema::ChoiceKey& choice, const Key& key, Group& group, void* spec) {
  auto& picked = *static_cast<Choice*>(key.locate(spec));
  if (!choice.under.empty()) group.known.insert(choice.under);
  const CatalogEntry* entry = pick(choice, key, group, picked.name);
  if (entry == nullptr) return refuse_options_of_no_entry(choice, key, group);
  const std::shared_ptr<void> options = entry->schema->create();
  read_options(choice, entry, group, options.get());
  picked = {entry->name, options};
}

/// Refuses the options of a job that names no entry, because it is not known which options there are.
void Checker::refuse_options_of_no_entry(const Schema::ChoiceKey& choice, const Key& key, const Group& group) {
  const Node* name = group.map == nullptr ? nullptr : group.map->find(key.name());
  const Node* options = group.map == nullptr || choice.under.empty() ? nullptr : group.map->find(choice.under);
  if (options == nullptr || options->kind != Node::Kind::map || options->parts.empty() || key.is_required()) return;
  if (reading_.gaps.keys) return;
  if (name != nullptr && name->kind != Node::Kind::null) return;  // misspelt, and reported
  std::vector<std::string> fitting;
  for (const std::string& entry : choice.catalog->names()) {
    const auto& keys = choice.catalog->find(entry)->schema->keys();
    if (std::ranges::all_of(options->parts, [&](const Node& part) {
          return std::ranges::any_of(keys, [&](const Key& each) { return each.name() == part.key; });
        }))
      fitting.push_back(entry);
  }
  const std::string dotted = join(group.dotted, key.name());
  problems_.add(options->key_location,
                shown(join(group.dotted, choice.under)) + " sets options, but " + shown(dotted) + " is missing",
                "set " + dotted + ": " + either(fitting.empty() ? choice.catalog->names() : fitting));
}

/// Returns the entry that the job names, or else `fallback`. For a misspelt name the one nearest entry, so that its
/// options are still checked; null if there is none.
const CatalogEntry* Checker::pick(const Schema::ChoiceKey& choice, const Key& key, Group& group,
                                  const std::string& fallback) {
  const std::string dotted = join(group.dotted, key.name());
  const bool is_beside = choice.under.empty();  // the options are keys of this group
  const Node* name = group.map == nullptr ? nullptr : group.map->find(key.name());
  if (name == nullptr || name->removes || (name->kind == Node::Kind::null && fallback.empty())) {
    if (reading_.gaps.keys) {
      group.guesses = group.guesses || is_beside;
      return nullptr;
    }
    if (key.is_required()) {
      problems_.add(group.location, "the key " + shown(dotted) + " is missing", either(choice.catalog->names()));
    }
    group.guesses = group.guesses || (is_beside && fallback.empty() && key.is_required());
    return choice.catalog->find(fallback);
  }
  if (name->is_broken) {
    group.guesses = is_beside;
    return nullptr;
  }
  if (name->kind == Node::Kind::scalar) {
    origins_[dotted] = name->location;
    if (const CatalogEntry* entry = choice.catalog->find(name->text)) return entry;
    if (reading_.gaps.entries) {
      misses_values_ = true;
      group.guesses = is_beside;
      return nullptr;
    }
  }
  if (name->kind == Node::Kind::scalar) {
    const std::string ours = unknown_keys_.our_word(dotted, *name);
    if (const CatalogEntry* entry = choice.catalog->find(ours)) {
      problems_.add(name->location, dotted + ": no " + choice.catalog->kind() + " is named " + shown(name->text),
                    "write `" + ours + "`");
      return entry;
    }
  }
  const std::vector<std::string> names = choice.catalog->names();
  const std::string meant = architecture_of(name->text);
  std::string hint = name->kind == Node::Kind::scalar ? did_you_mean(meant, names) : "";
  if (hint.empty() && name->kind == Node::Kind::scalar) hint = told_by_help(*choice.catalog, meant);
  if (!hint.empty()) hint += " ";
  problems_.add(name->location,
                dotted + ": no " + choice.catalog->kind() + " is named " +
                    (name->kind == Node::Kind::scalar ? shown(name->text) : description(*name)),
                hint + "there is " + either(names));
  const std::vector<std::string> near = nearest(name->text, names);
  group.guesses = is_beside && near.size() != 1;
  return near.size() == 1 ? choice.catalog->find(near[0]) : nullptr;
}

void Checker::read_options(const Schema::ChoiceKey& choice, const CatalogEntry* entry, Group& group, void* options) {
  if (choice.under.empty()) {
    group.picked.push_back({choice.catalog, entry});
    const size_t problems_before = problems_.count();
    read_keys(*entry->schema, group, options);
    if (problems_.count() == problems_before) pending_checks_.push_back({entry->schema, group.dotted, options});
    return;
  }
  const Node* under = group.map == nullptr ? nullptr : group.map->find(choice.under);
  const std::string dotted = join(group.dotted, choice.under);
  if (under != nullptr && under->kind != Node::Kind::map && under->kind != Node::Kind::null) {
    problems_.add(under->location, dotted + " must be a group of keys, not " + description(*under));
    return;
  }
  const bool given = under != nullptr && under->kind == Node::Kind::map;
  Group inner{given ? under : nullptr, dotted, given ? under->key_location : group.location};
  inner.picked.push_back({choice.catalog, entry});
  read_group(*entry->schema, std::move(inner), options);
}

/// Returns `map` plus the name and options of the choice it inherits from; empty if it inherits nothing.
std::optional<Node> Checker::with_inherited(const Schema& schema, const Node* map) const {
  for (const Schema::ChoiceKey& choice : schema.choices()) {
    const Key& key = schema.keys()[choice.key];
    if (map == nullptr || key.inherited_from().empty() || map->find(key.name()) != nullptr) continue;
    const size_t dot = key.inherited_from().rfind('.');
    const Node* lender = find_dotted(job_, std::string_view(key.inherited_from()).substr(0, dot));
    const Node* name = lender == nullptr ? nullptr : lender->find(key.name());
    const CatalogEntry* entry = name == nullptr ? nullptr : choice.catalog->find(name->text);
    if (lender == map || entry == nullptr) continue;
    Node merged = *map;
    merged.parts.push_back(*name);
    if (!choice.under.empty()) {
      const Node* theirs = lender->find(choice.under);
      if (theirs != nullptr && map->find(choice.under) == nullptr) merged.parts.push_back(*theirs);
      return merged;
    }
    for (const Key& option : entry->schema->keys()) {
      const Node* theirs = lender->find(option.name());
      if (theirs != nullptr && map->find(option.name()) == nullptr) merged.parts.push_back(*theirs);
    }
    return merged;
  }
  return std::nullopt;
}

}  // namespace gputrain::config
