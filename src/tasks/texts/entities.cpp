#include "entities.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <ATen/ops/tensor.h>

namespace gputrain::tasks {
namespace {

enum Part : int64_t { kOutside, kBegin, kInside, kEnd, kSingle, kParts };

struct Tag {
  Part part;
  std::string kind;
};

/// Parses a tag of IOB, or of BIOES, whose E and S the scheme BILOU calls L and U.
Tag tag_of(const std::string& tag) {
  constexpr std::array<std::pair<std::string_view, Part>, 6> kPrefixes{
      {{"B-", kBegin}, {"I-", kInside}, {"E-", kEnd}, {"S-", kSingle}, {"L-", kEnd}, {"U-", kSingle}}};
  for (const auto& [prefix, part] : kPrefixes)
    if (tag.starts_with(prefix)) return {part, tag.substr(prefix.size())};
  return {tag == "O" ? kOutside : kBegin, tag};
}

/// Finder of the entities of one text: kind, number of the first word, number behind the last one.
class EntityFinder {
 public:
  using Entity = std::tuple<int64_t, int64_t, int64_t>;

  void add(int64_t code, int64_t word) {
    const int64_t kind = code / kParts, part = code % kParts;
    const bool goes_on = (part == kInside || part == kEnd) && open_ && kind == kind_;
    if (!goes_on) end(word);
    if (part != kOutside && !goes_on) {
      open_ = true;
      kind_ = kind;
      first_ = word;
    }
    if (part == kEnd || part == kSingle) end(word + 1);
  }
  void end(int64_t word) {
    if (open_) found.insert({kind_, first_, word});
    open_ = false;
  }

  std::set<Entity> found;

 private:
  bool open_ = false;
  int64_t kind_ = 0, first_ = 0;
};

}  // namespace

at::Tensor tag_codes(const std::vector<std::string>& tags, int64_t classes) {
  std::map<std::string, int64_t> kinds;
  std::vector<int64_t> codes;
  for (const std::string& name : tags) {
    const Tag tag = tag_of(name);
    codes.push_back(kParts * kinds.emplace(tag.kind, std::ssize(kinds)).first->second + tag.part);
  }
  while (std::ssize(codes) < classes) codes.push_back(kParts * std::ssize(codes) + kBegin);  // names are not known
  return at::tensor(codes, at::kLong);
}

std::vector<Entity> entities_in(const std::vector<std::string>& tags) {
  const at::Tensor codes = tag_codes(tags, std::ssize(tags));
  EntityFinder finder;
  for (int64_t word = 0; word < codes.size(0); ++word) finder.add(codes.const_data_ptr<int64_t>()[word], word);
  finder.end(codes.size(0));
  std::vector<Entity> entities;
  for (const auto& [kind, begin, end] : finder.found)
    entities.push_back({.kind = tag_of(tags[static_cast<size_t>(begin)]).kind, .begin = begin, .end = end});
  std::ranges::sort(entities, {}, &Entity::begin);
  return entities;
}

bool mark_entities(const std::vector<std::string>& tags) {
  return std::ranges::any_of(tags, [](const std::string& tag) { return tag_of(tag).kind != tag; });
}

bool are_numbers(const std::vector<std::string>& tags) {
  const auto is_number = [](const std::string& tag) {
    return !tag.empty() && tag.find_first_not_of("0123456789") == std::string::npos;
  };
  return !tags.empty() && std::ranges::all_of(tags, is_number);
}

Hits entity_hits(const at::Tensor& rows) {
  Hits hits;
  EntityFinder guessed, truth;
  int64_t words = 0, before = -1;
  const auto end_text = [&] {
    guessed.end(words);
    truth.end(words);
    for (const auto& entity : guessed.found) hits.both += truth.found.contains(entity) ? 1 : 0;
    hits.predicted += static_cast<double>(guessed.found.size());
    hits.true_ones += static_cast<double>(truth.found.size());
    guessed.found.clear();
    truth.found.clear();
    words = 0;
  };
  const at::Tensor values = rows.contiguous();
  const double* row = values.const_data_ptr<double>();
  for (int64_t i = 0; i < values.size(0); ++i, row += kTagColumns) {
    const auto place = static_cast<int64_t>(row[2]);
    if (place <= before) end_text();
    before = place;
    if (row[1] < 0) continue;
    guessed.add(static_cast<int64_t>(row[0]), words);
    truth.add(static_cast<int64_t>(row[1]), words);
    ++words;
  }
  end_text();
  return hits;
}

}  // namespace gputrain::tasks
