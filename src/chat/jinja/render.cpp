#include "render.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "values/text.hpp"

namespace gputrain::chat {
namespace {

constexpr int kDeepestEvaluation = 1500;

/// Shortens a message to its beginning, because it may hold texts of a conversation.
std::string shortened(const std::string& message) {
  constexpr size_t kLongest = 400;
  if (message.size() <= kLongest) return printable(message);
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
  return printable(message.substr(0, end)) + "...";
}

}  // namespace

Render::Level::Level(Render& render) : render_(render) {
  if (++render_.level_ > kDeepestEvaluation) {
    --render_.level_;
    throw Problem("macros call each other too deeply: do they call themselves without end?");
  }
}

Render::Render(const Program& program, const nlohmann::ordered_json& variables)
    : program_(program), globals_(program.names.size()) {
  try {
    for (size_t id = 0; id < globals_.size(); ++id) {
      const auto found = variables.find(program.names[id]);
      if (found != variables.end()) {
        globals_[id] = value_of(*found);
        if (program.names[id] == "messages") find_messages(*globals_[id]);
      } else if (const Builtin* builtin = find_global(program.names[id])) {
        globals_[id] = Value(Function{.builtin = builtin});
      }
    }
  } catch (const Problem& problem) {
    throw Error(ExitCode::data, {.what = shortened(problem.what()), .where = program.name});
  }
}

Rendered Render::run() {
  try {
    run(program_.body, *this);
  } catch (const Problem& problem) {
    throw Error(ExitCode::data,
                {.what = shortened(problem.what()), .where = program_.name + ":" + std::to_string(line)});
  }
  return {std::move(text_), std::move(generated_), std::move(written_)};
}

void Render::find_messages(const Value& messages) {
  if (messages.sequence() == nullptr) return;
  const Values& all = messages.sequence()->items;
  for (size_t i = 0; i < all.size(); ++i)
    if (const Dict* message = all[i].dict()) messages_.emplace(message, i);
}

std::optional<size_t> Render::message_of(const Value& value) const {
  const auto found = messages_.find(value.dict());
  return found != messages_.end() ? std::optional(found->second) : std::nullopt;
}

Render::About::About(Render& render, const Value& item)
    : message_(render.message_, render.message_of(item) ? render.message_of(item) : render.message_),
      looks_for_message_(render.looks_for_message_, item.whole() != nullptr) {}

void Render::note_set(const Value& value) {
  const auto message = looks_for_message_ ? message_of(value) : std::nullopt;
  if (!message) return;
  message_ = message;
  looks_for_message_ = false;
}

void Render::write(std::string_view text) {
  const size_t begin = output_->size();
  budget.append(*output_, text);
  if (output_ != &text_ || !message_ || text.empty()) return;
  if (!written_.empty() && written_.back().message == *message_ && written_.back().range.end == begin) {
    written_.back().range.end = text_.size();
  } else {
    written_.push_back({{begin, text_.size()}, *message_});
  }
}

Flow Render::run(const Block& block, Render& render) {
  const Level level(render);
  for (const auto& statement : block) {
    render.line = statement->line;
    render.budget.spend(1);
    const Flow flow = statement->execute(render);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Flow Render::run_inside(const Block& block) {
  const Inside inside(*this);
  return run(block, *this);
}

Value Render::variable(size_t id) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get())
    for (const auto& [held, value] : scope->variables)
      if (held == id) return value;
  return globals_[id] ? *globals_[id] : Value::undefined("'" + program_.names[id] + "' is undefined");
}

void Render::assign(size_t id, Value value) {
  for (auto& [held, place] : scope_->variables)
    if (held == id) {
      place = std::move(value);
      return;
    }
  scope_->variables.emplace_back(id, std::move(value));
}

Value Render::new_namespace(const Dict& attributes) {
  namespaces_.push_back(std::make_unique<Namespace>());
  for (const auto& [key, value] : attributes.entries) namespaces_.back()->set(text_of(key, budget), value);
  return Value(namespaces_.back().get());
}

Value Render::new_macro(const MacroDefinition& definition) {
  constexpr size_t kSteps = 20;  // it is kept until the end
  budget.spend(kSteps);
  macros_.push_back(std::make_unique<Macro>(Macro{definition, scope_}));
  return Value(Function{.macro = macros_.back().get()});
}

Value Render::call(const Value& callee, Arguments arguments) {
  if (callee.undefined() != nullptr) fail_undefined(*callee.undefined());
  const Function* function = callee.function();
  if (function == nullptr) throw Problem("a " + type_name(callee) + " cannot be called");
  if (function->macro != nullptr) return call_macro(*function->macro, std::move(arguments));
  return run_builtin(*function->builtin, *this, function->self ? *function->self : Value(), std::move(arguments));
}

Value Render::passed(Arguments& arguments, const MacroDefinition::Parameter& parameter, size_t position) {
  if (position < arguments.positional.size()) return std::move(arguments.positional[position]);
  const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                  [&](const auto& named) { return named.first == parameter.name; });
  if (found != arguments.named.end()) {
    Value value = std::move(found->second);
    arguments.named.erase(found);
    return value;
  }
  if (parameter.otherwise) return parameter.otherwise->evaluate(*this);
  return Value::undefined("parameter '" + parameter.name + "' was not provided");
}

Value Render::call_macro(const Macro& macro, Arguments arguments) {
  const MacroDefinition& definition = macro.definition;
  const Inside inside(*this, macro.scope);
  const Swapped<bool> looks(looks_for_message_, false);
  const size_t count = definition.parameters.size();
  for (size_t i = 0; i < count; ++i)
    assign(definition.parameters[i].id, passed(arguments, definition.parameters[i], i));
  const size_t more = arguments.positional.size() > count ? arguments.positional.size() - count : 0;
  if (more > 0 && !definition.varargs)
    throw Problem("macro '" + definition.name + "' takes not more than " + std::to_string(count) + " arguments");
  if (!arguments.named.empty() && !definition.kwargs)
    throw Problem("macro '" + definition.name + "' takes no argument '" + arguments.named.front().first + "'");
  if (definition.varargs)
    assign(*definition.varargs,
           Value::tuple({arguments.positional.end() - static_cast<std::ptrdiff_t>(more), arguments.positional.end()}));
  if (definition.kwargs) {
    auto dict = std::make_shared<Dict>();
    for (auto& [name, value] : arguments.named) dict->set(Value(name), std::move(value));
    assign(*definition.kwargs, Value(std::shared_ptr<const Dict>(std::move(dict))));
  }
  return Value(captured([&] { run(definition.body, *this); }));
}

Value Render::attribute(const Value& object, const std::string& name) {
  if (object.undefined() != nullptr) fail_undefined(*object.undefined());
  const std::string type = object.is_none() ? "None" : type_name(object);
  if (is_mutator(object, name))
    return Value::undefined("'" + name + "' would change a " + type + ", which templates must not");
  if (const Builtin* method = find_method(object, name))
    return Value(Function{.builtin = method, .self = std::make_shared<const Value>(object)});
  if (const Loop* loop = object.loop())
    if (auto value = loop_attribute(*loop, name)) return *value;
  const Value* found = nullptr;
  if (object.dict() != nullptr) {
    budget.spend(object.dict()->entries.size() / 16);
    found = object.dict()->find(name);
  }
  if (object.space() != nullptr) found = object.space()->find(name);
  return found != nullptr ? *found : Value::undefined("'" + type + " object' has no attribute '" + name + "'");
}

Value Render::item(const Value& object, const Value& key) {
  if (object.undefined() != nullptr) fail_undefined(*object.undefined());
  const auto index = key.index();
  const Sequence* sequence = object.sequence();
  const bool is_sequence = object.text() != nullptr || (sequence != nullptr && sequence->is_indexed());
  if (is_sequence && index) {
    const auto size = static_cast<int64_t>(length_of(object));
    const int64_t at = *index < 0 ? *index + size : *index;
    if (at >= 0 && at < size) {
      const auto place = static_cast<size_t>(at);
      return sequence != nullptr ? sequence->items[place] : character(*object.text(), place, budget);
    }
  }
  if (const Dict* dict = object.dict()) {
    budget.spend(dict->entries.size() / 16);
    if (const Value* found = dict->find(key)) return *found;
  }
  if (key.string() != nullptr) return attribute(object, *key.string());
  const std::string type = object.is_none() ? "None" : type_name(object);
  return Value::undefined("'" + type + " object' has no element " + shortened(text_of(key, budget)));
}

}  // namespace gputrain::chat
