#include <array>
#include <ctime>

#include "../render.hpp"
#include "../values/operators.hpp"
#include "../values/text.hpp"
#include "builtin.hpp"
#include "gputrain/chat/local_time.hpp"

namespace gputrain::chat {
namespace {

int64_t whole_argument(const Value& value) {
  if (value.undefined() != nullptr) fail_undefined(*value.undefined());
  const auto whole = value.index();
  if (!whole) throw Problem("'range' needs whole numbers, not a " + type_name(value));
  return *whole;
}

Value global_range(Call& call) {
  const Values& given = call.rest.positional;
  if (given.empty() || given.size() > 3 || !call.rest.named.empty()) throw Problem("'range' needs 1 to 3 numbers");
  const int64_t start = given.size() > 1 ? whole_argument(given[0]) : 0;
  const int64_t stop = whole_argument(given[given.size() > 1 ? 1 : 0]);
  const int64_t step = given.size() > 2 ? whole_argument(given[2]) : 1;
  if (step == 0) throw Problem("the step of 'range' must not be 0");
  constexpr size_t kMost = 100'000;
  Values numbers;
  for (int64_t number = start; step > 0 ? number < stop : number > stop;) {
    if (numbers.size() == kMost) throw Problem("'range' gives more than 100000 numbers");
    numbers.emplace_back(number);
    if (__builtin_add_overflow(number, step, &number)) break;
  }
  call.budget.spend(numbers.size());
  std::string label = "range(" + std::to_string(start) + ", " + std::to_string(stop);
  label += step == 1 ? ")" : ", " + std::to_string(step) + ")";
  return Value(std::make_shared<const Sequence>(Sequence::Kind::range, std::move(numbers), std::move(label)));
}

/// Makes a dict as Python's dict() does: from a dict or from pairs, and from named arguments.
std::shared_ptr<const Dict> made_dict(Call& call) {
  auto dict = std::make_shared<Dict>();
  if (call.rest.positional.size() > 1) throw Problem("a dict is made of one dict or list, and named arguments");
  for (const Value& source : call.rest.positional) {
    if (source.dict() != nullptr) {
      *dict = *source.dict();
      continue;
    }
    const auto pairs = items_of(source, call.budget);
    for (const Value& pair : pairs->items) {
      const auto parts = items_of(pair, call.budget);
      if (parts->items.size() != 2) throw Problem("a dict is made of pairs");
      call.budget.spend(dict->entries.size() / 16);
      dict->set(parts->items[0], parts->items[1]);
    }
  }
  for (const auto& [name, value] : call.rest.named) dict->set(Value(name), value);
  call.budget.spend(dict->entries.size());
  return dict;
}

Value global_strftime(Call& call) {
  const std::string& format = call.string(0);
  if (format.empty()) return Value("");
  const std::tm parts = local_time();
  std::array<char, 1024> text;
  const size_t size = std::strftime(text.data(), text.size(), format.c_str(), &parts);
  const std::string_view written(text.data(), size);
  if (size == 0 || !is_utf8(written)) throw Problem("'strftime_now' cannot write the time like this");
  return Value(written);
}

const std::vector<Builtin>& all_globals() {
  static const std::vector<Builtin> kGlobals = {
      {"range", 0, {}, global_range, true},
      {"namespace", 0, {}, [](Call& call) { return call.render.new_namespace(*made_dict(call)); }, true},
      {"dict", 0, {}, [](Call& call) { return Value(made_dict(call)); }, true},
      {"raise_exception", 1, {"message"}, [](Call& call) -> Value { throw Problem(text_of(call[0], call.budget)); }},
      {"strftime_now", 1, {"format"}, global_strftime},
  };
  return kGlobals;
}

}  // namespace

const Builtin* find_global(std::string_view name) {
  for (const Builtin& builtin : all_globals())
    if (builtin.name == name) return &builtin;
  return nullptr;
}

}  // namespace gputrain::chat
