#include "nodes.hpp"
#include "render.hpp"

namespace gputrain::chat {

Value Expression::evaluate(Render& render) const {
  const Render::Level level(render);
  render.budget.spend(1);
  render.line = line;
  return result(render);
}

Arguments ArgumentList::evaluate(Render& render) const {
  Arguments arguments;
  for (const auto& argument : positional) arguments.positional.push_back(argument->evaluate(render));
  for (const auto& [name, argument] : named) arguments.named.emplace_back(name, argument->evaluate(render));
  if (list) {
    const auto more = items_of(list->evaluate(render), render.budget);
    arguments.positional.insert(arguments.positional.end(), more->items.begin(), more->items.end());
  }
  if (!dict) return arguments;
  const Value more = dict->evaluate(render);
  if (more.dict() == nullptr) throw Problem("'**' needs a dict, not a " + type_name(more));
  for (const auto& [key, value] : more.dict()->entries) {
    const std::string* name = key.string();
    if (name == nullptr) throw Problem("the keys of '**' must be strings");
    arguments.named.emplace_back(*name, value);
  }
  return arguments;
}

Value Constant::result(Render&) const { return value; }

Value Name::result(Render& render) const { return render.variable(id); }

Value ListOf::result(Render& render) const {
  Values values;
  for (const auto& item : items) values.push_back(item->evaluate(render));
  return is_tuple ? Value::tuple(std::move(values)) : Value::list(std::move(values));
}

Value DictOf::result(Render& render) const {
  Dict::Entries pairs;
  for (const auto& [key, value] : entries) {
    Value name = key->evaluate(render);
    pairs.emplace_back(std::move(name), value->evaluate(render));
  }
  return Value(std::make_shared<const Dict>(std::move(pairs)));
}

Value Binary::result(Render& render) const {
  const Value a = left->evaluate(render), b = right->evaluate(render);
  render.line = line;
  return arithmetic(operation, a, b, render.budget);
}

Value Unary::result(Render& render) const {
  const Value value = operand->evaluate(render);
  if (kind == Kind::negation) return Value(!is_true(value));
  return kind == Kind::negative ? negated(value) : negated(negated(value));
}

Value Either::result(Render& render) const {
  Value value = left->evaluate(render);
  return is_true(value) == is_or ? value : right->evaluate(render);
}

Value Comparison::result(Render& render) const {
  Value left = first->evaluate(render);
  Budget& budget = render.budget;
  for (const auto& [kind, operand] : others) {
    Value right = operand->evaluate(render);
    bool holds = false;
    switch (kind) {
      case Kind::equal:
        holds = equal(left, right, budget);
        break;
      case Kind::not_equal:
        holds = !equal(left, right, budget);
        break;
      case Kind::less:
        holds = is_ordered(left, right) && order(left, right, "<", budget) < 0;
        break;
      case Kind::less_equal:
        holds = is_ordered(left, right) && order(left, right, "<=", budget) <= 0;
        break;
      case Kind::greater:
        holds = is_ordered(left, right) && order(left, right, ">", budget) > 0;
        break;
      case Kind::greater_equal:
        holds = is_ordered(left, right) && order(left, right, ">=", budget) >= 0;
        break;
      case Kind::in:
        holds = contains(right, left, budget);
        break;
      case Kind::not_in:
        holds = !contains(right, left, budget);
        break;
    }
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Concatenation::result(Render& render) const {
  std::string text;
  for (const auto& part : parts) print(part->evaluate(render), text, render.budget);
  return Value(std::move(text));
}

Value Conditional::result(Render& render) const {
  if (is_true(condition->evaluate(render))) return yes->evaluate(render);
  return no ? no->evaluate(render) : Value::undefined("an inline 'if' without 'else' has no value here");
}

Value Attribute::result(Render& render) const {
  const Value value = object->evaluate(render);
  render.line = line;
  return render.attribute(value, name);
}

Value Subscript::result(Render& render) const {
  const Value value = object->evaluate(render), key = index->evaluate(render);
  render.line = line;
  return render.item(value, key);
}

Value Slice::result(Render& render) const {
  const Value value = object->evaluate(render);
  SliceBounds bounds;
  const auto bound = [&](const ExpressionPtr& expression) -> std::optional<int64_t> {
    if (!expression) return std::nullopt;
    const Value at = expression->evaluate(render);
    const auto number = at.index();
    if (!number && !at.is_none()) throw Problem("the bounds of a slice must be whole numbers");
    return number;
  };
  bounds.start = bound(start);
  bounds.stop = bound(stop);
  bounds.step = bound(step).value_or(1);
  render.line = line;
  return slice_of(value, bounds, render.budget);
}

Value Invocation::result(Render& render) const {
  const Value function = callee->evaluate(render);
  Arguments values = arguments.evaluate(render);
  render.line = line;
  return render.call(function, std::move(values));
}

Value Applied::result(Render& render) const { return apply(render, operand->evaluate(render)); }

Value Applied::apply(Render& render, Value operand_value) const {
  Arguments values = arguments.evaluate(render);
  render.line = line;
  return run_builtin(*builtin, render, std::move(operand_value), std::move(values));
}

}  // namespace gputrain::chat
