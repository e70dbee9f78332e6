// The parser of all that follows the begin of an expression: attributes, subscripts, calls, filters and tests.
#include "expression_parser.hpp"

#include "gputrain/core/printable.hpp"

namespace gputrain::chat {
namespace {
using Kind = Token::Kind;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr object) {
  while (true) {
    if (sees_symbol(".")) {
      object = attribute(std::move(object));
    } else if (sees_symbol("[")) {
      object = subscript(std::move(object));
    } else if (sees_symbol("(")) {
      object = invocation(std::move(object));
    } else {
      return object;
    }
  }
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr operand) {
  while (true) {
    if (take_symbol("|")) {
      operand = filter(std::move(operand));
    } else if (sees_word("is")) {
      operand = test(std::move(operand));
    } else if (sees_symbol("(")) {
      operand = invocation(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::attribute(ExpressionPtr object) {
  take();
  if (current().kind == Kind::whole) {
    auto node = made<Subscript>();
    node->object = part_of(*node, std::move(object));
    node->index = part_of(*node, primary());
    return node;
  }
  auto node = made<Attribute>();
  node->object = part_of(*node, std::move(object));
  node->name = expect_name("an attribute");
  return node;
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
  const Level level(*this);
  take();
  if (sees_symbol(":")) return slice(std::move(object), nullptr);
  ExpressionPtr index = expression();
  if (sees_symbol(":")) return slice(std::move(object), std::move(index));
  if (sees_symbol(",")) fail("several subscripts are not supported");
  auto node = made<Subscript>();
  node->object = part_of(*node, std::move(object));
  node->index = part_of(*node, std::move(index));
  expect_symbol("]");
  return node;
}

ExpressionPtr ExpressionParser::slice(ExpressionPtr object, ExpressionPtr start) {
  auto node = made<Slice>();
  node->object = part_of(*node, std::move(object));
  if (start) node->start = part_of(*node, std::move(start));
  take();
  if (!sees_symbol(":") && !sees_symbol("]")) node->stop = part_of(*node, expression());
  if (take_symbol(":") && !sees_symbol("]")) node->step = part_of(*node, expression());
  expect_symbol("]");
  return node;
}

ExpressionPtr ExpressionParser::invocation(ExpressionPtr callee) {
  auto node = made<Invocation>();
  node->callee = part_of(*node, std::move(callee));
  read_arguments(*node, node->arguments);
  return node;
}

void ExpressionParser::read_arguments(Expression& parent, ArgumentList& arguments) {
  const Level level(*this);
  expect_symbol("(");
  for (bool is_first = true; !sees_symbol(")"); is_first = false) {
    if (!is_first) expect_symbol(",");
    if (sees_symbol(")")) break;
    if (arguments.dict) fail("an argument follows '**'");
    if (sees_symbol("*") || sees_symbol("**")) {
      ExpressionPtr& many = take().text == "*" ? arguments.list : arguments.dict;
      if (many) fail("more than one '*' or '**'");
      many = part_of(parent, expression());
    } else if (current().kind == Kind::name && ahead().is(Kind::symbol, "=")) {
      const std::string name = take().text;
      take();
      arguments.named.emplace_back(name, part_of(parent, expression()));
    } else {
      if (!arguments.named.empty() || arguments.list) fail("an argument without a name follows one with a name or '*'");
      arguments.positional.push_back(part_of(parent, expression()));
    }
  }
  take();
}

std::string ExpressionParser::dotted_name(const char* of_what) {
  std::string name = expect_name(of_what);
  while (take_symbol(".")) name += "." + expect_name(of_what);
  return name;
}

std::unique_ptr<Applied> ExpressionParser::filter(ExpressionPtr operand) {
  auto node = made<Applied>();
  if (operand) node->operand = part_of(*node, std::move(operand));
  const std::string name = dotted_name("a filter");
  node->builtin = find_filter(name);
  if (node->builtin == nullptr) throw SyntaxProblem{"no filter is called '" + printable(name) + "'", node->line};
  if (sees_symbol("(")) read_arguments(*node, node->arguments);
  return node;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr operand) {
  auto node = made<Applied>();
  take();
  const bool is_negated = take_word("not");
  node->operand = part_of(*node, std::move(operand));
  const std::string name = dotted_name("a test");
  node->builtin = find_test(name);
  if (node->builtin == nullptr) throw SyntaxProblem{"no test is called '" + printable(name) + "'", node->line};
  const Kind kind = current().kind;
  const bool begins_value = (kind == Kind::name && !sees_word("else") && !sees_word("or") && !sees_word("and")) ||
                            kind == Kind::string || kind == Kind::whole || kind == Kind::real || sees_symbol("[") ||
                            sees_symbol("{");
  if (sees_symbol("(")) {
    read_arguments(*node, node->arguments);
  } else if (begins_value) {
    if (sees_word("is")) fail("a test must not follow a test");
    node->arguments.positional.push_back(part_of(*node, postfix(primary())));
  }
  if (!is_negated) return node;
  auto negation = made<Unary>();
  negation->line = node->line;
  negation->operand = part_of(*negation, std::move(node));
  return negation;
}

}  // namespace gputrain::chat
