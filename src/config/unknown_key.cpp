#include "unknown_key.hpp"

#include <algorithm>
#include <iterator>

#include "gputrain/config/names.hpp"
#include "yaml/odd_characters.hpp"
#include "yaml/scalar.hpp"

namespace gputrain::config {
namespace {

constexpr size_t kMostSiblings = 32;
constexpr size_t kMostLocations = 4;
constexpr size_t kLongestValue = 60;

std::string in_backticks(const std::string& line) { return "`" + line + "`"; }

/// Returns the user's value on one line, or "..." if it is long.
std::string value_text(const Node& node) {
  std::string text = to_flow(node);
  return text.size() > kLongestValue ? "..." : text;
}

/// Returns how to write `name: value` into a group: as YAML in a file, or as --set on the command line.
std::string how_to_write(const Node& part, const std::string& group, const std::string& name,
                         const std::string& value) {
  const SourceLocation& location = part.key_location;
  if (location.source && location.source->kind == Source::Kind::command_line) {
    return "write `--set " + join(group, name) + "=" + value + "`";
  }
  const std::string line = in_backticks(name + ": " + value);
  if (group.empty()) return "write " + line + " at the top level";
  std::string where = group;
  for (size_t dot = where.find('.'); dot != std::string::npos; dot = where.find('.', dot)) where.replace(dot, 1, ": ");
  return "under `" + where + ":` write " + line;
}

template <class Range>
std::vector<std::string> groups_of(const Range& known) {
  std::vector<std::string> groups;
  for (const KnownKey* key : known) {
    const std::string group = key->group.empty() ? "the top level" : "'" + key->group + "'";
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  return groups;
}

std::string named_in(const std::string& key, const std::string& group) {
  return "unknown key " + shown(key) + (group.empty() ? "" : " in " + shown(group));
}

/// Returns whether other YAML files use this top-level key for anchors.
bool is_for_anchors(const std::string& name) {
  constexpr const char* kNames[] = {"defaults", "anchors", "common", "shared", "templates"};
  return name.starts_with("x-") || name.starts_with(".") || name.starts_with("_") ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

struct Target {
  std::string group, name;
};

/// Returns the key that takes a value for `known`. The scalar of `optim: sgd` goes into the key that picks the entry.
Target target_of(const KnownKey& known, const Node& part) {
  const Schema* group = group_inside(known.key->type());
  if (part.kind == Node::Kind::scalar && group != nullptr && !group->choices().empty()) {
    return {known.dotted(), group->keys()[group->choices().front().key].name()};
  }
  return {known.group, known.key->name()};
}

}  // namespace

const KeyIndex& UnknownKeys::index() {
  if (!index_) index_.emplace(root_);
  return *index_;
}

void UnknownKeys::note(const Node& part, const std::string& group, const std::vector<std::string>& siblings,
                       const std::vector<Picked>& picked, Problems& problems) {
  if (problems.is_full()) return;
  const Question question{part, group, siblings, picked};
  std::optional<Advice> advice = renamed(question);
  if (!advice) advice = other_entry(question);
  if (!advice) advice = misplaced(question);
  if (!advice) advice = dotted(question);
  if (!advice) advice = misspelt(question);
  problems.add(part.key_location, std::move(advice->what), std::move(advice->hint));
}

bool UnknownKeys::is_renamed(const Node& part, const std::string& group) {
  const std::vector<KeyIndex::Renamed> found = index().renamed(group, part.key);
  return std::any_of(found.begin(), found.end(), [&](const KeyIndex::Renamed& renamed) {
    return renamed.known->group == group && renamed.known->entry == nullptr;
  });
}

/// Advises on another tool's name for one of our keys.
std::optional<UnknownKeys::Advice> UnknownKeys::renamed(const Question& question) {
  const std::vector<KeyIndex::Renamed> found = index().renamed(question.group, question.part.key);
  if (found.empty()) return std::nullopt;
  // Prefer a key in this group, then one that is no option or an option of the picked entry.
  const auto rank = [&](const KeyIndex::Renamed& renamed) {
    const bool here = renamed.known->group == question.group;
    const bool is_picked = std::any_of(question.picked.begin(), question.picked.end(),
                                       [&](const Picked& picked) { return picked.entry == renamed.known->entry; });
    return (here ? 2 : 0) + (renamed.known->entry == nullptr || is_picked ? 1 : 0);
  };
  const KeyIndex::Renamed best =
      *std::max_element(found.begin(), found.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  const std::string theirs = in_backticks(printable(question.part.key) + ": " + value_text(question.part));
  const bool converts = best.foreign->convert && question.part.kind == Node::Kind::scalar;
  std::string value = converts ? best.foreign->convert(question.part.text) : value_text(question.part);
  if (const std::string ours = ours_for(value, best.known->key->allowed()); !ours.empty()) value = ours;
  if (value.empty()) return Advice{theirs + " needs no line here", "leave it out"};
  const Target target = target_of(*best.known, question.part);
  const std::string ours = in_backticks(join(target.group, target.name) + ": " + printable(value));
  Advice advice{theirs + " is " + ours + " here", {}};
  const auto& source = question.part.key_location.source;
  const bool is_set = source && source->kind == Source::Kind::command_line;
  if (target.group != question.group || is_set) {
    advice.hint = how_to_write(question.part, target.group, target.name, printable(value));
  }
  return advice;
}

/// Advises on an option of an entry that is not picked.
std::optional<UnknownKeys::Advice> UnknownKeys::other_entry(const Question& question) {
  std::vector<std::string> having;
  const KnownKey* option = nullptr;
  for (const KnownKey* known : index().named(question.part.key)) {
    if (known->group != question.group || known->entry == nullptr) continue;
    having.push_back(shown(known->entry->name));
    option = known;
  }
  if (option == nullptr) return std::nullopt;
  Advice advice{shown(question.part.key) + " is an option of the " + option->catalog->kind() + " " + either(having),
                {}};
  for (const Picked& picked : question.picked) {
    if (picked.catalog != option->catalog) continue;
    advice.what += ", not of " + shown(picked.entry->name);
    advice.hint =
        "remove it; if it comes from an included file, write " + in_backticks(printable(question.part.key) + ": null");
    return advice;
  }
  advice.what += ", and none is picked";
  advice.hint = "write " + in_backticks(option->picked_by + ": " + option->entry->name);
  return advice;
}

/// Returns one of our keys in the wrong group.
std::optional<UnknownKeys::Advice> UnknownKeys::misplaced(const Question& question) {
  std::vector<const KnownKey*> known = index().named(question.part.key);
  std::erase_if(known, [&](const KnownKey* key) { return key->group == question.group; });
  const std::vector<std::string> groups = groups_of(known);
  if (groups.empty() || groups.size() > kMostLocations) return std::nullopt;
  Advice advice{shown(question.part.key) + " belongs under " + either(groups), {}};
  if (known.front()->group.empty()) advice.what = shown(question.part.key) + " belongs at the top level";
  if (!question.group.empty()) advice.what += ", not under " + shown(question.group);
  if (groups.size() == 1) {
    std::vector<std::string> allowed;  // values that any entry with this key allows
    const bool is_allowed = std::ranges::any_of(known, [&](const KnownKey* key) {
      const auto& choices = key->key->allowed();
      std::ranges::copy_if(choices, std::back_inserter(allowed), [&](const std::string& choice) {
        return std::ranges::find(allowed, choice) == allowed.end();
      });
      return choices.empty() || std::ranges::find(choices, question.part.text) != choices.end();
    });
    advice.hint = is_allowed
                      ? how_to_write(question.part, known.front()->group, question.part.key, value_text(question.part))
                      : "there it must be " + either(allowed);
  }
  return advice;
}

/// Advises on `train.max_steps: 3` in a file.
std::optional<UnknownKeys::Advice> UnknownKeys::dotted(const Question& question) {
  for (const KnownKey& known : index().all()) {
    if (known.dotted() != join(question.group, question.part.key) || known.group == question.group) continue;
    return Advice{named_in(question.part.key, question.group) + "; dots are for --set only",
                  how_to_write(question.part, known.group, known.key->name(), value_text(question.part))};
  }
  return std::nullopt;
}

UnknownKeys::Advice UnknownKeys::misspelt(const Question& question) {
  const std::string& name = question.part.key;
  Advice advice{named_in(name, question.group), did_you_mean(name, question.siblings)};
  if (root_.foreign())
    if (auto instead = root_.foreign()(join(question.group, name), question.part)) advice.hint = *std::move(instead);
  if (advice.hint.empty()) advice.hint = near_elsewhere(name);
  if (advice.hint.empty() && question.part.kind == Node::Kind::null && name.find(' ') != std::string::npos) {
    advice.hint = "is a ':' missing in this line?";
  }
  if (advice.hint.empty() && question.group.empty() && is_for_anchors(name)) {
    advice.hint = "put values for anchors (&name) under `vars:`";
  }
  if (advice.hint.empty() && question.part.kind == Node::Kind::map) {
    advice.hint = advice_inside(question.part, join(question.group, name));
  }
  if (advice.hint.empty() && question.siblings.size() <= kMostSiblings) {
    advice.hint = "the keys here are " + either(question.siblings);
  }
  if (const std::string odd = beyond_ascii(name); !odd.empty()) advice.hint = odd + "\n" + advice.hint;
  return advice;
}

/// Returns the one key of any group, or of another tool, with a similar name. Any long word is near some of so many
/// names by chance, so the distance limit is smaller here than within a group, unless one name contains the other.
std::string UnknownKeys::near_elsewhere(const std::string& name) {
  std::vector<std::string> names;
  for (const KnownKey& known : index().all()) {
    names.push_back(known.key->name());
    for (const Key::Foreign& foreign : known.key->foreign_names()) names.push_back(foreign.name);
  }
  const std::vector<std::string> near = nearest(name, names);
  if (near.size() != 1) return {};
  const bool is_part = near[0].find(name) != std::string::npos || name.find(near[0]) != std::string::npos;
  if (!is_part && edit_distance(name, near[0]) * 4 > name.size()) return {};
  for (const KnownKey& known : index().all()) {
    const auto& foreign = known.key->foreign_names();
    const bool is_foreign =
        std::any_of(foreign.begin(), foreign.end(), [&](const auto& one) { return one.name == near[0]; });
    if (known.key->name() == near[0] || is_foreign) return "did you mean " + shown(known.dotted()) + "?";
  }
  return {};
}

/// Returns, for an unknown group, where its keys belong.
std::string UnknownKeys::advice_inside(const Node& map, const std::string& group) {
  std::string lines;
  for (const Node& part : map.parts) {
    const Question question{part, group, {}, {}};
    std::optional<Advice> advice = renamed(question);
    if (!advice) advice = misplaced(question);
    if (!advice) continue;
    if (!lines.empty()) lines += "\n";
    lines += advice->hint.empty() ? advice->what : advice->hint;
  }
  return lines;
}

}  // namespace gputrain::config
