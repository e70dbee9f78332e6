#include "unknown_key.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "check.hpp"
#include "gputrain/config/names.hpp"
#include "yaml/odd_characters.hpp"
#include "yaml/parse.hpp"
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

/// Returns of which entries a key is an option.
std::string option_of(const std::vector<const KnownKey*>& known) {
  std::vector<std::string> entries;
  for (const KnownKey* key : known)
    if (key->entry != nullptr) entries.push_back(shown(key->entry->name));
  return "it is an option of the " + known.front()->catalog->kind() + " " + either(entries);
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

/// Returns the user's line.
std::string theirs_of(const Node& part) { return in_backticks(printable(part.key) + ": " + value_text(part)); }

/// Returns a value that is written as YAML; nothing if it is none.
std::optional<Node> parsed(const std::string& yaml) {
  Budget budget;
  Problems none;
  return parse_yaml(std::make_shared<Source>(Source{{}, yaml}), budget, none);
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
  if (advice) mind_value(question, *advice);
  if (!advice) advice = other_entry(question);
  if (!advice) advice = misplaced(question);
  if (!advice) advice = dotted(question);
  if (!advice) advice = misspelt(question);
  problems.add(part.key_location, std::move(advice->what), std::move(advice->hint));
}

std::string UnknownKeys::our_word(const std::string& dotted, const Node& theirs) const {
  if (theirs.kind != Node::Kind::scalar || !root_.foreign()) return "";
  const auto instead = root_.foreign()(dotted, theirs);
  const bool is_word = instead && instead->settings.size() == 1 && instead->settings.front().first == dotted;
  return is_word ? instead->settings.front().second : "";
}

bool UnknownKeys::is_renamed(const Node& part, const std::string& group) {
  const std::vector<KeyIndex::Renamed> found = index().renamed(group, part.key);
  return std::any_of(found.begin(), found.end(), [&](const KeyIndex::Renamed& renamed) {
    return renamed.known->group == group && renamed.known->entry == nullptr;
  });
}

/// Returns the key of ours that another tool's name stands for: one in this group before others, then one that is no
/// option or an option of the picked entry.
std::optional<KeyIndex::Renamed> UnknownKeys::known_by_other_name(const Question& question) {
  const std::vector<KeyIndex::Renamed> found = index().renamed(question.group, question.part.key);
  if (found.empty()) return std::nullopt;
  const auto rank = [&](const KeyIndex::Renamed& renamed) {
    const bool here = renamed.known->group == question.group;
    const bool is_picked = std::any_of(question.picked.begin(), question.picked.end(),
                                       [&](const Picked& picked) { return picked.entry == renamed.known->entry; });
    return (here ? 2 : 0) + (renamed.known->entry == nullptr || is_picked ? 1 : 0);
  };
  return std::ranges::max(found, {}, rank);
}

/// Advises on another tool's name for one of our keys.
std::optional<UnknownKeys::Advice> UnknownKeys::renamed(const Question& question) {
  const auto best = known_by_other_name(question);
  if (!best) return std::nullopt;
  const std::string theirs = theirs_of(question.part);
  const bool converts = best->foreign->convert && question.part.kind == Node::Kind::scalar;
  std::string value = converts ? best->foreign->convert(question.part.text) : value_text(question.part);
  if (const std::string ours = ours_for(value, best->known->key->allowed()); !ours.empty()) value = ours;
  if (value.empty()) return Advice{theirs + " needs no line here", "leave it out"};
  const Target target = target_of(*best->known, question.part);
  if (const std::string ours = our_word(join(target.group, target.name), question.part); !ours.empty()) value = ours;
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
    advice.hint = without_option(question, *option);
    return advice;
  }
  advice.what += ", and none is picked";
  const size_t dot = option->picked_by.rfind('.');
  advice.hint = how_to_write(question.part, option->picked_by.substr(0, dot), option->picked_by.substr(dot + 1),
                             option->entry->name);
  return advice;
}

/// Returns how to be rid of an option of another entry, which may stand in an included file.
std::string UnknownKeys::without_option(const Question& question, const KnownKey& option) {
  const auto &source = question.part.key_location.source, &job = job_.location.source;
  const auto file_of = [](const Source& one) { return std::filesystem::path(one.name).lexically_normal(); };
  const bool is_included = source && job && source->kind == Source::Kind::file && file_of(*source) != file_of(*job);
  if (!is_included) return "remove it";
  std::string hint = "write " + in_backticks(printable(question.part.key) + ": null");
  const std::string group = option.picked_by.substr(0, option.picked_by.rfind('.'));
  if (told_replaceable_.insert(group).second)
    hint += ", or `!replace` before the keys of " + shown(group) + ", which drops all that included files say of it";
  return hint;
}

/// Returns one of our keys in the wrong group.
std::optional<UnknownKeys::Advice> UnknownKeys::misplaced(const Question& question) {
  std::vector<const KnownKey*> known = index().named(question.part.key);
  std::erase_if(known, [&](const KnownKey* key) { return key->group == question.group; });
  const bool is_single = question.part.kind == Node::Kind::scalar || question.part.kind == Node::Kind::list;
  const auto takes = [&](const KnownKey* key) { return mistakes_in({key, question.part}).empty(); };
  const bool fits = is_single && std::ranges::any_of(known, takes);  // else at least the words of a key may be meant
  if (is_single)
    std::erase_if(known, [&](const KnownKey* key) { return fits ? !takes(key) : key->key->allowed().empty(); });
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
    if (!is_allowed) {
      advice.hint = "there it must be " + either(allowed);
    } else if (!std::ranges::any_of(known, takes)) {
      advice.hint = "what is in it is checked there";
    } else if (std::ranges::any_of(known, [&](const KnownKey* key) { return is_picked(*key); })) {
      advice.hint = how_to_write(question.part, known.front()->group, question.part.key, value_text(question.part));
    } else {
      advice.hint = option_of(known);
    }
  }
  return advice;
}

/// Returns whether the job has picked the entry of an option. True for other keys.
bool UnknownKeys::is_picked(const KnownKey& option) const {
  if (option.entry == nullptr) return true;
  const Node* name = find_dotted(job_, option.picked_by);
  return name == nullptr ? option.is_default : name->text == option.entry->name;
}

/// Returns what our key would say to the value.
std::vector<Problem> UnknownKeys::mistakes_in(const Proposal& proposal) {
  const auto& [known, value] = proposal;
  Problems problems;
  const Environment any = [](const std::string&) { return "/home"; };  // of paths that begin with ~
  Checker(root_, job_, {.environment = any, .advises = false}, problems)
      .try_out(*known->owner, *known->key, value, known->group);
  return problems.take();
}

/// Returns the key and value that renamed() tells of; empty: none.
std::optional<UnknownKeys::Proposal> UnknownKeys::proposed(const Question& question) {
  const auto best = known_by_other_name(question);
  if (!best) return std::nullopt;
  Proposal proposal{best->known, question.part};
  if (best->foreign->convert && question.part.kind == Node::Kind::scalar) {
    const std::string text = best->foreign->convert(question.part.text);
    if (text.empty()) return std::nullopt;
    if (auto value = parsed(text)) proposal.value = std::move(*value);
  }
  if (const std::string ours = ours_for(to_flow(proposal.value), best->known->key->allowed()); !ours.empty())
    proposal.value = {.kind = Node::Kind::scalar, .text = ours};
  const Target target = target_of(*best->known, question.part);
  if (const std::string ours = our_word(join(target.group, target.name), question.part); !ours.empty())
    proposal.value = {.kind = Node::Kind::scalar, .text = ours};
  for (const KnownKey& known : index().all()) {
    const bool is_it = known.group == target.group && known.key->name() == target.name;
    if (is_it && (is_picked(known) || proposal.known->key->name() != target.name)) proposal.known = &known;
  }
  return proposal;
}

/// Corrects advice about another tool's name for a key of ours that does not take the value.
void UnknownKeys::mind_value(const Question& question, Advice& advice) {
  const std::optional<Proposal> proposal = proposed(question);
  if (!proposal) return;
  const KnownKey& known = *proposal->known;
  const std::vector<Problem> mistakes = mistakes_in(*proposal);
  if (mistakes.empty()) {
    if (!is_picked(known)) advice.hint = option_of({&known});
    return;
  }
  if (question.part.kind == Node::Kind::null) {
    advice = {theirs_of(question.part) + " needs no line here", "leave it out"};
  } else {
    advice = other_values(question, known, mistakes.front());
  }
}

/// Advises on a name for our key whose value it does not take.
UnknownKeys::Advice UnknownKeys::other_values(const Question& question, const KnownKey& known, const Problem& mistake) {
  return {theirs_of(question.part) + " is " + shown(known.dotted()) + " here, which takes other values",
          mistake.what + (mistake.hint.empty() ? "" : "; " + mistake.hint)};
}

/// Advises on a key of another tool.
UnknownKeys::Advice UnknownKeys::from_other_tool(const Question& question, const Schema::Instead& instead) {
  Advice advice{named_in(question.part.key, question.group), instead.why};
  for (const auto& [dotted, value] : instead.settings) {
    const size_t dot = dotted.rfind('.');
    const std::string group = dot == std::string::npos ? "" : dotted.substr(0, dot);
    advice.hint += (advice.hint.empty() ? "" : ", and ") +
                   how_to_write(question.part, group, dotted.substr(dot + 1), printable(value));
    const KnownKey* known = nullptr;
    for (const KnownKey& one : index().all())
      if (one.dotted() == dotted && (known == nullptr || is_picked(one))) known = &one;
    const std::optional<Node> node = parsed(value);
    if (known == nullptr || !node) continue;  // of a plug-in, for instance
    const std::vector<Problem> mistakes = mistakes_in({known, *node});
    if (!mistakes.empty()) return other_values(question, *known, mistakes.front());
    const bool is_picked_too = known->entry != nullptr && std::ranges::any_of(instead.settings, [&](const auto& other) {
                                 return other.first == known->picked_by && other.second == known->entry->name;
                               });
    if (!is_picked(*known) && !is_picked_too) advice.hint += "; " + option_of({known});
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
  if (root_.foreign())
    if (const auto instead = root_.foreign()(join(question.group, name), question.part))
      return from_other_tool(question, *instead);
  Advice advice{named_in(name, question.group), did_you_mean(name, question.siblings)};
  if (advice.hint.empty()) advice.hint = near_elsewhere(name, question.group);
  if (advice.hint.empty() && question.part.kind == Node::Kind::null && name.find(' ') != std::string::npos) {
    advice.hint = "is a ':' missing in this line?";
  }
  if (advice.hint.empty() && question.group.empty() && is_for_anchors(name)) {
    advice.hint = "put values for anchors (&name) under `vars:`";
  }
  if (advice.hint.empty() && question.part.kind == Node::Kind::map) {
    advice.hint = advice_inside(question.part, join(question.group, name));
  }
  if (advice.hint.empty() && question.siblings.size() <= kMostSiblings && listed_.insert(question.siblings).second) {
    advice.hint = "the keys here are " + either(question.siblings);
  }
  if (const std::string odd = beyond_ascii(name); !odd.empty()) advice.hint = odd + "\n" + advice.hint;
  return advice;
}

/// Returns the one key of any group, or of another tool, with a similar name; of several, the one in `group`. Any long
/// word is near some of so many names by chance, so the distance limit is smaller here than within a group, unless one
/// name contains the other.
std::string UnknownKeys::near_elsewhere(const std::string& name, const std::string& group) {
  std::vector<std::string> names;
  for (const KnownKey& known : index().all()) {
    names.push_back(known.key->name());
    for (const Key::Foreign& foreign : known.key->foreign_names()) names.push_back(foreign.name);
  }
  const std::vector<std::string> near = nearest(name, names);
  if (near.size() != 1 || near[0] == name) return {};
  const bool is_part = near[0].find(name) != std::string::npos || name.find(near[0]) != std::string::npos;
  if (!is_part && edit_distance(name, near[0]) * 4 > name.size()) return {};
  std::set<std::string> meant;
  for (const KnownKey& known : index().all()) {
    const auto& foreign = known.key->foreign_names();
    const bool is_foreign =
        std::any_of(foreign.begin(), foreign.end(), [&](const auto& one) { return one.name == near[0]; });
    if (known.key->name() == near[0] || is_foreign) meant.insert(known.dotted());
  }
  if (meant.size() > 1)
    std::erase_if(meant, [&](const std::string& dotted) { return !dotted.starts_with(group + "."); });
  return meant.size() == 1 ? "did you mean " + shown(*meant.begin()) + "?" : "";
}

/// Returns, for an unknown group, where its keys belong.
std::string UnknownKeys::advice_inside(const Node& map, const std::string& group) {
  std::string lines;
  for (const Node& part : map.parts) {
    const Question question{part, group, {}, {}};
    std::optional<Advice> advice = renamed(question);
    if (advice) mind_value(question, *advice);
    if (!advice) advice = misplaced(question);
    if (!advice) continue;
    if (!lines.empty()) lines += "\n";
    lines += advice->hint.empty() ? advice->what : advice->hint;
  }
  return lines;
}

}  // namespace gputrain::config
