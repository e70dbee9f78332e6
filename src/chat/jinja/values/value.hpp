// The values of a template while it is rendered. They behave as Python's.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::chat {

/// A mistake in a template or its variables. The code that catches it knows name and line and throws an Error.
class Problem : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bounds the work of one rendering, because templates are other people's programs.
class Budget {
 public:
  /// Throws Problem when all is spent.
  void spend(size_t steps);
  /// Appends `piece` to `text`, and pays for it. Throws Problem if the text gets too long.
  void append(std::string& text, std::string_view piece);

  /// Pays for a search for `part`, or for one of its characters, at each place of a text.
  void spend_search(std::string_view text, std::string_view part) {
    spend(1 + text.size() / 64 * (1 + part.size() / 64) + part.size() / 64);
  }

  static constexpr size_t kSteps = 10'000'000;
  static constexpr size_t kLongestText = size_t{64} << 20;

 private:
  size_t left_ = kSteps;
};

class Value;
class Render;
struct Builtin;
struct Macro;
struct Loop;
struct Dict;
struct Sequence;
using Values = std::vector<Value>;

struct None {};

/// Prints as nothing; most else that is done with it is a Problem with this message.
struct Undefined {
  std::shared_ptr<const std::string> message;
};

struct Text {
  std::shared_ptr<const std::string> bytes;
  bool is_ascii = true;
  bool is_safe = false;  // made by the filter `safe`: `+` escapes a text that is joined to it
};

/// A result of `namespace()`. Rendering owns it.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
};

/// Something that can be called: a builtin, with its object if it is a method, or a macro, which rendering owns.
struct Function {
  const Builtin* builtin = nullptr;
  std::shared_ptr<const Value> self = {};
  const Macro* macro = nullptr;
};

class Value {
  template <class Pointer>
  typename Pointer::element_type* pointee() const {
    const Pointer* pointer = std::get_if<Pointer>(&data_);
    return pointer != nullptr ? pointer->get() : nullptr;
  }

 public:
  Value() = default;  // None
  template <std::same_as<bool> T>
  explicit Value(T flag) : data_(flag) {}
  explicit Value(int64_t number) : data_(number) {}
  explicit Value(double number) : data_(number) {}
  explicit Value(std::string text, bool is_safe = false);
  explicit Value(std::string_view text) : Value(std::string(text)) {}
  explicit Value(const char* text) : Value(std::string(text)) {}
  explicit Value(Undefined undefined) : data_(std::move(undefined)) {}
  explicit Value(std::shared_ptr<const Sequence> sequence) : data_(std::move(sequence)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  explicit Value(Namespace* space) : data_(space) {}
  explicit Value(std::shared_ptr<Loop> loop) : data_(std::move(loop)) {}
  explicit Value(Function function) : data_(std::move(function)) {}

  static Value undefined(std::string message);
  static Value list(Values items);
  static Value tuple(Values items);
  static Value view(std::string_view name, Values items);  // view of a dict: no list, but with a length
  static Value iterator(Values items);                     // can be read once

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const int64_t* whole() const { return std::get_if<int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const Text* text() const { return std::get_if<Text>(&data_); }
  const std::string* string() const { return text() != nullptr ? text()->bytes.get() : nullptr; }
  const Sequence* sequence() const { return pointee<std::shared_ptr<const Sequence>>(); }
  const std::shared_ptr<const Sequence>& shared_sequence() const {
    return std::get<std::shared_ptr<const Sequence>>(data_);
  }
  const Dict* dict() const { return pointee<std::shared_ptr<const Dict>>(); }
  Namespace* space() const { return std::holds_alternative<Namespace*>(data_) ? std::get<Namespace*>(data_) : nullptr; }
  Loop* loop() const { return pointee<std::shared_ptr<Loop>>(); }
  const Function* function() const { return std::get_if<Function>(&data_); }

  /// Returns a bool or a whole number.
  std::optional<int64_t> index() const;

 private:
  std::variant<None, Undefined, bool, int64_t, double, Text, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Dict>, Namespace*, std::shared_ptr<Loop>, Function>
      data_;
};

/// Lists and what is like them. `depth` counts how deep values are nested, which is bounded.
struct Sequence {
  enum class Kind { list, tuple, range, view, iterator };

  Sequence(Kind kind, Values items, std::string label = {});

  Kind kind;
  Values items;
  std::string label;  // how a range, a view or an iterator prints
  size_t depth;
  mutable size_t taken = 0;  // items that an iterator has given

  bool is_indexed() const { return kind == Kind::list || kind == Kind::tuple || kind == Kind::range; }
};

/// In the order of insertion. Keys are numbers, strings, None.
struct Dict {
  using Entries = std::vector<std::pair<Value, Value>>;

  Dict() = default;
  /// Throws Problem for a key of another type.
  explicit Dict(Entries entries);

  /// Sets a value; a later value of the same key replaces the former. Throws Problem for a key of another type.
  void set(Value key, Value value);
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

  Entries entries;
  size_t depth = 1;
};

/// The variable `loop`. Stays readable after its loop.
struct Loop {
  std::shared_ptr<const Sequence> items;
  size_t index0 = 0;
};

/// Throws Problem if it is nested too deeply, has a number too large or text that is not UTF-8.
Value value_of(const nlohmann::ordered_json& json);

/// Throws Problem for a list or dict, which Python does not look up in a dict.
void check_hashable(const Value& value);
bool is_true(const Value& value);
/// Returns the name of its type in Python.
std::string type_name(const Value& value);
[[noreturn]] void fail_undefined(const Undefined& undefined);

}  // namespace gputrain::chat
