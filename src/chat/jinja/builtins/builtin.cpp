#include "builtin.hpp"

#include <algorithm>

#include "../render.hpp"
#include "../values/operators.hpp"

namespace gputrain::chat {

Call::Call(const Builtin& builtin, Render& render_, Value self_, Arguments arguments)
    : render(render_),
      budget(render_.budget),
      self(std::move(self_)),
      builtin_(builtin),
      given_(builtin.parameters.size()) {
  const size_t taken = std::min(arguments.positional.size(), given_.size());
  for (size_t i = 0; i < taken; ++i) given_[i] = std::move(arguments.positional[i]);
  for (size_t i = taken; i < arguments.positional.size(); ++i)
    rest.positional.push_back(std::move(arguments.positional[i]));
  for (auto& [name, value] : arguments.named) {
    const auto found = std::find(builtin.parameters.begin(), builtin.parameters.end(), name);
    if (found == builtin.parameters.end()) {
      rest.named.emplace_back(name, std::move(value));
      continue;
    }
    auto& place = given_[static_cast<size_t>(found - builtin.parameters.begin())];
    if (place) throw Problem("'" + builtin.name + "' gets its argument '" + name + "' twice");
    place = std::move(value);
  }
  if (!builtin.takes_any && !rest.named.empty())
    throw Problem("'" + builtin.name + "' has no argument '" + rest.named.front().first + "'");
  if (!builtin.takes_any && !rest.positional.empty()) throw Problem("'" + builtin.name + "' gets too many arguments");
  for (size_t i = 0; i < builtin.required; ++i)
    if (!given_[i]) throw Problem("'" + builtin.name + "' needs the argument '" + builtin.parameters[i] + "'");
}

const std::string& Call::name_of(size_t i) const { return builtin_.parameters[i]; }

int64_t Call::whole_or(size_t i, int64_t otherwise) const {
  if (!has(i)) return otherwise;
  if (given_[i]->undefined() != nullptr) fail_undefined(*given_[i]->undefined());
  const auto whole = given_[i]->index();
  if (!whole) throw Problem("'" + builtin_.name + "' needs a whole number for '" + name_of(i) + "'");
  return *whole;
}

const std::string& Call::string(size_t i) const {
  if (given_[i]->undefined() != nullptr) fail_undefined(*given_[i]->undefined());
  const std::string* string = given_[i]->string();
  if (!string) throw Problem("'" + builtin_.name + "' needs a string for '" + name_of(i) + "'");
  return *string;
}

std::string Call::self_text() const { return text_of(self, budget); }

Value run_builtin(const Builtin& builtin, Render& render, Value self, Arguments arguments) {
  Call call(builtin, render, std::move(self), std::move(arguments));
  if (const std::string* text = call.self.string()) render.budget.spend(text->size() / 64);  // most read all of it
  Value result = builtin.run(call);
  if (const std::string* text = result.string()) render.budget.spend(text->size() / 64);
  if (const Sequence* sequence = result.sequence()) render.budget.spend(sequence->items.size());
  return result;
}

}  // namespace gputrain::chat
