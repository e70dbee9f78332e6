#include "unknown_key.hpp"

#include <algorithm>

#include "names.hpp"
#include "scalar.hpp"

namespace gputrain::config {
namespace {

constexpr size_t kMostListed = 16;
constexpr size_t kMostPlaces = 4;
constexpr size_t kLongestValue = 60;

std::string in_backticks(const std::string& line) { return "`" + line + "`"; }

/// The user's value on one line, or dots where it is long.
std::string value_text(const Node& node) {
  std::string text = to_flow(node);
  return text.size() > kLongestValue ? "..." : text;
}

/// How to put `name: value` into a group: as YAML in a file, as --set on the command line.
std::string how_to_write(const Node& part, const std::string& group, const std::string& name, const std::string& value) {
  const Place& place = part.key_place;
  if (place.source && place.source->kind == Source::Kind::command_line) {
    return "write --set " + join(group, name) + "=" + value;
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
  problems.add(part.key_place, std::move(advice->what), std::move(advice->hint));
}

/// Another tool's name for one of our keys.
std::optional<UnknownKeys::Advice> UnknownKeys::renamed(const Question& question) {
  const std::vector<KeyIndex::Renamed> found = index().renamed(question.group, question.part.key);
  if (found.empty()) return std::nullopt;
  // Of several keys the one in this group, and there the option of what the job picks, is meant.
  const auto rank = [&](const KeyIndex::Renamed& renamed) {
    const bool here = renamed.known->group == question.group;
    const bool is_picked = std::any_of(question.picked.begin(), question.picked.end(),
                                       [&](const Picked& picked) { return picked.entry == renamed.known->entry; });
    return (here ? 2 : 0) + (renamed.known->entry == nullptr || is_picked ? 1 : 0);
  };
  const KeyIndex::Renamed best = *std::max_element(
      found.begin(), found.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  const std::string value = best.foreign->value.empty() ? value_text(question.part) : best.foreign->value;
  const std::string theirs = printable(question.part.key) + ": " + value_text(question.part);
  Advice advice{in_backticks(theirs) + " is " + in_backticks(best.known->dotted() + ": " + value) + " here", {}};
  if (best.known->group != question.group) {
    advice.hint = how_to_write(question.part, best.known->group, best.known->key->name(), value);
  }
  return advice;
}

/// An option of another entry of a catalog than the one picked.
std::optional<UnknownKeys::Advice> UnknownKeys::other_entry(const Question& question) {
  for (const Picked& picked : question.picked) {
    if (!picked.options_beside || picked.entry == nullptr) continue;
    std::vector<std::string> having;
    for (const CatalogEntry& entry : picked.catalog->entries()) {
      if (entry.schema->find(question.part.key) != nullptr) having.push_back(shown(entry.name));
    }
    if (having.empty()) continue;
    const std::string kind = picked.catalog->kind();
    return Advice{shown(question.part.key) + " is an option of the " + kind + " " + either(having) + ", not of " +
                      shown(picked.entry->name),
                  "remove it; if it comes from an included file, " +
                      in_backticks(printable(question.part.key) + ": null") + " takes it away"};
  }
  return std::nullopt;
}

/// One of our keys in the wrong group.
std::optional<UnknownKeys::Advice> UnknownKeys::misplaced(const Question& question) {
  const std::vector<const KnownKey*> known = index().named(question.part.key);
  const std::vector<std::string> groups = groups_of(known);
  if (groups.empty() || groups.size() > kMostPlaces) return std::nullopt;
  Advice advice{shown(question.part.key) + " belongs under " + either(groups), {}};
  if (known.front()->group.empty()) advice.what = shown(question.part.key) + " belongs at the top level";
  if (!question.group.empty()) advice.what += ", not under " + shown(question.group);
  if (groups.size() == 1) {
    advice.hint =
        how_to_write(question.part, known.front()->group, question.part.key, value_text(question.part));
  }
  return advice;
}

/// `train.max_steps: 3` in a file.
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
  if (!advice.hint.empty()) return advice;
  std::vector<std::string> everywhere;
  for (const KnownKey& known : index().all()) everywhere.push_back(known.key->name());
  if (const std::vector<std::string> near = nearest(name, everywhere); near.size() == 1) {
    const KnownKey* known = index().named(near[0]).front();
    advice.hint = "did you mean " + shown(known->dotted()) + "?";
  } else if (question.part.kind == Node::Kind::map) {
    advice.hint = advice_inside(question.part, join(question.group, name));
  }
  if (advice.hint.empty() && question.siblings.size() <= kMostListed) {
    advice.hint = "the keys here are " + either(question.siblings);
  }
  return advice;
}

/// For a group that is not ours: where the keys inside belong.
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
