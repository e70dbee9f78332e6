#include "gputrain/data/target.hpp"

#include <algorithm>
#include <vector>

namespace gputrain {
namespace {

std::vector<Target>& known_targets() {
  static std::vector<Target> all{Target::next_token, Target::masked, Target::label, Target::labels,
                                 Target::number,     Target::tags,   Target::pairs, Target::preference,
                                 Target::rating,     Target::pixels};
  return all;
}

}  // namespace

std::optional<Target> Target::named(std::string_view name) {
  const auto found = std::ranges::find(known_targets(), name, &Target::name);
  return found == known_targets().end() ? std::nullopt : std::optional(*found);
}

void Target::add(const Target& target) {
  if (!named(target.name())) known_targets().push_back(target);
}

}  // namespace gputrain
