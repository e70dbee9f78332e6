// The syntax tree of a template: expressions and statements that evaluate themselves.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "builtins/builtin.hpp"
#include "values/operators.hpp"
#include "values/value.hpp"

namespace gputrain::chat {

class Render;

struct Expression {
  virtual ~Expression() = default;
  /// Counts as a step. Throws Problem.
  Value evaluate(Render& render) const;

  int line = 0;
  int height = 1;  // height of the tree below, which is bounded

 protected:
  virtual Value result(Render& render) const = 0;
};
using ExpressionPtr = std::unique_ptr<Expression>;
using Expressions = std::vector<ExpressionPtr>;

struct ArgumentList {
  Expressions positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr list, dict;  // *list, **dict; may be missing

  Arguments evaluate(Render& render) const;
};

struct Constant final : Expression {
  Value value;
  Value result(Render& render) const override;
};

struct Name final : Expression {
  size_t id = 0;  // in Program::names
  Value result(Render& render) const override;
};

struct ListOf final : Expression {
  Expressions items;
  bool is_tuple = false;
  Value result(Render& render) const override;
};

struct DictOf final : Expression {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
  Value result(Render& render) const override;
};

struct Binary final : Expression {
  Arithmetic operation = Arithmetic::add;
  ExpressionPtr left, right;
  Value result(Render& render) const override;
};

struct Unary final : Expression {
  enum class Kind { negative, positive, negation } kind = Kind::negation;
  ExpressionPtr operand;
  Value result(Render& render) const override;
};

/// `and`, `or`: one of the operands.
struct Either final : Expression {
  bool is_or = false;
  ExpressionPtr left, right;
  Value result(Render& render) const override;
};

struct Comparison final : Expression {
  enum class Kind { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
  ExpressionPtr first;
  std::vector<std::pair<Kind, ExpressionPtr>> others;  // a < b < c
  Value result(Render& render) const override;
};

struct Concatenation final : Expression {
  Expressions parts;
  Value result(Render& render) const override;
};

struct Conditional final : Expression {
  ExpressionPtr condition, yes, no;  // `no` may be missing
  Value result(Render& render) const override;
};

struct Attribute final : Expression {
  ExpressionPtr object;
  std::string name;
  Value result(Render& render) const override;
};

struct Subscript final : Expression {
  ExpressionPtr object, index;
  Value result(Render& render) const override;
};

struct Slice final : Expression {
  ExpressionPtr object, start, stop, step;  // all but the object may be missing
  Value result(Render& render) const override;
};

struct Invocation final : Expression {
  ExpressionPtr callee;
  ArgumentList arguments;
  Value result(Render& render) const override;
};

/// A filter or a test. Without operand, the filter of a block `set`.
struct Applied final : Expression {
  ExpressionPtr operand;
  const Builtin* builtin = nullptr;
  ArgumentList arguments;
  Value result(Render& render) const override;
  Value apply(Render& render, Value operand_value) const;
};

enum class Flow { next, leaves_loop, next_iteration };

struct Statement {
  virtual ~Statement() = default;
  virtual Flow execute(Render& render) const = 0;

  int line = 0;
};
using Block = std::vector<std::unique_ptr<Statement>>;

/// The target of an assignment.
struct Target {
  enum class Kind { name, attribute, tuple } kind = Kind::name;
  size_t id = 0;          // number of the name, or of the namespace
  std::string attribute;  // attribute of the namespace
  std::vector<Target> parts;

  void assign(Render& render, Value value) const;
};

struct Data final : Statement {
  std::string text;
  Flow execute(Render& render) const override;
};

struct Output final : Statement {
  ExpressionPtr value;
  Flow execute(Render& render) const override;
};

struct If final : Statement {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
  Flow execute(Render& render) const override;
};

struct For final : Statement {
  Target target;
  ExpressionPtr items, condition;  // the condition may be missing
  Block body, otherwise;
  bool uses_loop = false;  // the body asks for `loop`
  size_t loop_id = 0;
  Flow execute(Render& render) const override;

 private:
  std::shared_ptr<const Sequence> chosen(Render& render, const Sequence& source) const;
};

struct SetValue final : Statement {
  Target target;
  ExpressionPtr value;
  Flow execute(Render& render) const override;
};

struct SetBlock final : Statement {
  Target target;
  std::vector<std::unique_ptr<Applied>> filters;
  Block body;
  Flow execute(Render& render) const override;
};

struct MacroDefinition final : Statement {
  struct Parameter {
    size_t id;
    std::string name;
    ExpressionPtr otherwise;  // may be missing
  };

  size_t id = 0;
  std::string name;
  std::vector<Parameter> parameters;
  std::optional<size_t> varargs, kwargs;  // the names, if the body uses them
  Block body;
  Flow execute(Render& render) const override;
};

/// Text that the assistant says.
struct Generation final : Statement {
  Block body;
  Flow execute(Render& render) const override;
};

struct Jump final : Statement {
  Flow flow = Flow::next;
  Flow execute(Render& render) const override;
};

/// A template that has been read. Immutable.
struct Program {
  std::string name;  // for messages
  std::vector<std::string> names;
  Block body;
  bool has_generation = false;
};

}  // namespace gputrain::chat
