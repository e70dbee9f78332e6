// One rendering of a template: its variables, its output and its bounds.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/chat/template.hpp"
#include "nodes.hpp"

namespace gputrain::chat {

/// The variables of a loop's turn, a macro's call or a block.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<size_t, Value>> variables;
};

/// A macro and the variables that it sees.
struct Macro {
  const MacroDefinition& definition;
  std::shared_ptr<Scope> scope;
};

/// Puts another value in a place while it lives.
template <class T>
class Swapped {
 public:
  Swapped(T& place, T value) : place_(place), former_(std::exchange(place, std::move(value))) {}
  ~Swapped() { place_ = std::move(former_); }
  Swapped(const Swapped&) = delete;
  Swapped& operator=(const Swapped&) = delete;

 private:
  T& place_;
  T former_;
};

class Render {
 public:
  /// Takes the variables that the program names.
  Render(const Program& program, const nlohmann::ordered_json& variables);
  Render(const Render&) = delete;
  Render& operator=(const Render&) = delete;

  /// Throws Error(data).
  Rendered run();

  Value variable(size_t id) const;
  void assign(size_t id, Value value);
  const std::string& name_of(size_t id) const { return program_.names[id]; }

  void write(std::string_view text);
  size_t written() const { return output_->size(); }
  void add_generated(Range range) { generated_.push_back(range); }

  Value new_namespace(const Dict& attributes);
  Value new_macro(const MacroDefinition& definition);
  Value call(const Value& callee, Arguments arguments);
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);

  /// While it lives, variables are assigned in a scope of its own.
  class Inside {
   public:
    explicit Inside(Render& render) : Inside(render, render.scope_) {}
    Inside(Render& render, std::shared_ptr<Scope> parent)
        : scope_(render.scope_, std::make_shared<Scope>(Scope{std::move(parent), {}})) {}

   private:
    Swapped<std::shared_ptr<Scope>> scope_;
  };

  /// While it lives, what is written is about the message that a loop's item is. In a loop over numbers it is the first
  /// message that a variable is set to.
  class About {
   public:
    About(Render& render, const Value& item);

   private:
    Swapped<std::optional<size_t>> message_;
    Swapped<bool> looks_for_message_;
  };
  void note_set(const Value& value);

  Flow run_inside(const Block& block);
  static Flow run(const Block& block, Render& render);
  /// Runs `body` and returns what it writes.
  template <class Body>
  std::string captured(const Body& body) {
    std::string text;
    const Swapped<std::string*> output(output_, &text);
    body();
    return text;
  }

  /// Bounds how deep evaluation is nested, because it recurses.
  class Level {
   public:
    explicit Level(Render& render);
    ~Level() { --render_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Render& render_;
  };

  Budget budget;
  int line = 0;  // line of the present node, for messages

 private:
  Value call_macro(const Macro& macro, Arguments arguments);
  void find_messages(const Value& messages);
  std::optional<size_t> message_of(const Value& value) const;
  Value passed(Arguments& arguments, const MacroDefinition::Parameter& parameter, size_t position);

  const Program& program_;
  std::vector<std::optional<Value>> globals_;  // index: id
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  std::vector<std::unique_ptr<Macro>> macros_;
  std::string text_;
  std::string* output_ = &text_;
  std::vector<Range> generated_;
  std::unordered_map<const Dict*, size_t> messages_;
  std::optional<size_t> message_;   // message at which a loop stands
  bool looks_for_message_ = false;  // inside a loop over numbers
  std::vector<Written> written_;
  int level_ = 0;
};

}  // namespace gputrain::chat
