#include "expression_parser.hpp"

#include <charconv>

#include "gputrain/core/printable.hpp"

namespace gputrain::chat {
namespace {

using Kind = Token::Kind;
constexpr int kDeepest = 100;  // brackets and blocks in each other
constexpr int kHighest = 300;  // trees of expressions, such as a + b + c + ...

std::string shown(const Token& token) {
  switch (token.kind) {
    case Kind::data:
      return "text";
    case Kind::output_begin:
      return "'{{'";
    case Kind::output_end:
      return "'}}'";
    case Kind::block_begin:
      return "'{%'";
    case Kind::block_end:
      return "'%}'";
    case Kind::string:
      return "a string";
    case Kind::end:
      return "the end of the template";
    default:
      return "'" + printable(token.text) + "'";
  }
}

}  // namespace

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.level_ > kDeepest) {
    --parser_.level_;
    parser_.fail("nested more than " + std::to_string(kDeepest) + " deep");
  }
}

bool ExpressionParser::take_symbol(std::string_view text) {
  if (!sees_symbol(text)) return false;
  take();
  return true;
}

bool ExpressionParser::take_word(std::string_view text) {
  if (!sees_word(text)) return false;
  take();
  return true;
}

void ExpressionParser::expect_symbol(std::string_view text) {
  if (!take_symbol(text)) fail("expected '" + std::string(text) + "', found " + shown(current()));
}

std::string ExpressionParser::expect_name(const char* of_what) {
  if (current().kind != Kind::name)
    fail("expected the name of " + std::string(of_what) + ", found " + shown(current()));
  return take().text;
}

void ExpressionParser::fail(const std::string& what) const { throw SyntaxProblem{what, current().line}; }
void ExpressionParser::fail_unexpected() const { fail("unexpected " + shown(current())); }

size_t ExpressionParser::id_of(const std::string& name) {
  const auto [entry, is_new] = ids_.emplace(name, names_.size());
  if (is_new) names_.push_back(name);
  return entry->second;
}

ExpressionPtr ExpressionParser::part_of(Expression& parent, ExpressionPtr part) const {
  parent.height = std::max(parent.height, part->height + 1);
  if (parent.height > kHighest) fail("an expression has too many parts");
  return part;
}

ExpressionPtr ExpressionParser::expression() {
  const Level level(*this);
  ExpressionPtr value = expression_without_condition();
  while (sees_word("if")) {
    auto node = made<Conditional>();
    take();
    node->yes = part_of(*node, std::move(value));
    node->condition = part_of(*node, expression_without_condition());
    if (take_word("else")) node->no = part_of(*node, expression());
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::expression_without_condition() {
  ExpressionPtr left = conjunction();
  while (sees_word("or")) {
    auto node = made<Either>();
    take();
    node->is_or = true;
    node->left = part_of(*node, std::move(left));
    node->right = part_of(*node, conjunction());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr left = negation();
  while (sees_word("and")) {
    auto node = made<Either>();
    take();
    node->left = part_of(*node, std::move(left));
    node->right = part_of(*node, negation());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!sees_word("not")) return comparison();
  const Level level(*this);
  auto node = made<Unary>();
  take();
  node->operand = part_of(*node, negation());
  return node;
}

ExpressionPtr ExpressionParser::comparison() {
  using Operator = Comparison::Kind;
  constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"==", Operator::equal},      {"!=", Operator::not_equal}, {"<", Operator::less},
      {"<=", Operator::less_equal}, {">", Operator::greater},    {">=", Operator::greater_equal}};
  auto node = made<Comparison>();
  ExpressionPtr first = sum();
  const auto add = [&](Operator kind) { node->others.emplace_back(kind, part_of(*node, sum())); };
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (const auto& [symbol, kind] : kOperators)
      if (take_symbol(symbol)) {
        add(kind);
        goes_on = true;
      }
    if (take_word("in")) {
      add(Operator::in);
      goes_on = true;
    } else if (sees_word("not") && ahead().is(Kind::name, "in")) {
      take();
      take();
      add(Operator::not_in);
      goes_on = true;
    }
  }
  if (node->others.empty()) return first;
  node->first = part_of(*node, std::move(first));
  return node;
}

ExpressionPtr ExpressionParser::binary(Arithmetic operation, ExpressionPtr left, ExpressionPtr right) const {
  auto node = made<Binary>();
  node->operation = operation;
  node->left = part_of(*node, std::move(left));
  node->right = part_of(*node, std::move(right));
  return node;
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (true) {
    if (take_symbol("+")) {
      left = binary(Arithmetic::add, std::move(left), concatenation());
    } else if (take_symbol("-")) {
      left = binary(Arithmetic::subtract, std::move(left), concatenation());
    } else {
      return left;
    }
  }
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr first = product();
  if (!sees_symbol("~")) return first;
  auto node = made<Concatenation>();
  node->parts.push_back(part_of(*node, std::move(first)));
  while (take_symbol("~")) node->parts.push_back(part_of(*node, product()));
  return node;
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  while (true) {
    if (take_symbol("*")) {
      left = binary(Arithmetic::multiply, std::move(left), power());
    } else if (take_symbol("/")) {
      left = binary(Arithmetic::divide, std::move(left), power());
    } else if (take_symbol("//")) {
      left = binary(Arithmetic::floor_divide, std::move(left), power());
    } else if (take_symbol("%")) {
      left = binary(Arithmetic::modulo, std::move(left), power());
    } else {
      return left;
    }
  }
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  while (take_symbol("**")) left = binary(Arithmetic::power, std::move(left), unary(true));
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr value;
  if (sees_symbol("-") || sees_symbol("+")) {
    const Level level(*this);
    auto node = made<Unary>();
    node->kind = take().text == "-" ? Unary::Kind::negative : Unary::Kind::positive;
    node->operand = part_of(*node, unary(false));
    value = std::move(node);
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::tuple(bool with_condition) {
  auto node = made<ListOf>();
  node->is_tuple = true;
  bool has_comma = false;
  while (true) {
    if (current().kind == Kind::output_end || current().kind == Kind::block_end || sees_symbol(")")) break;
    node->items.push_back(with_condition ? expression() : expression_without_condition());
    if (!take_symbol(",")) break;
    has_comma = true;
  }
  if (!has_comma && node->items.size() == 1) return std::move(node->items.front());
  if (node->items.empty() && !sees_symbol(")")) fail("expected an expression, found " + shown(current()));
  for (ExpressionPtr& item : node->items) item = part_of(*node, std::move(item));
  return node;
}

ExpressionPtr ExpressionParser::primary() {
  switch (current().kind) {
    case Kind::name:
      return word();
    case Kind::string:
      return strings();
    case Kind::whole:
    case Kind::real:
      return number();
    default:
      break;
  }
  const Level level(*this);
  if (sees_symbol("[")) return list();
  if (sees_symbol("{")) return dict();
  if (!take_symbol("(")) fail_unexpected();
  ExpressionPtr inner = tuple();
  expect_symbol(")");
  return inner;
}

ExpressionPtr ExpressionParser::word() {
  auto constant = made<Constant>();
  auto variable = made<Name>();
  const std::string text = take().text;
  if (text == "true" || text == "True" || text == "false" || text == "False") {
    constant->value = Value(text == "true" || text == "True");
    return constant;
  }
  if (text == "none" || text == "None") return constant;
  if (text == "loop") special_.loop = true;
  if (text == "varargs") special_.varargs = true;
  if (text == "kwargs") special_.kwargs = true;
  variable->id = id_of(text);
  return variable;
}

ExpressionPtr ExpressionParser::strings() {
  auto node = made<Constant>();
  std::string text;
  while (current().kind == Kind::string) text += take().text;
  node->value = Value(std::move(text));
  return node;
}

ExpressionPtr ExpressionParser::number() {
  auto node = made<Constant>();
  const Token token = take();
  const char *begin = token.text.data(), *end = begin + token.text.size();
  int64_t whole = 0;
  double real = 0;
  const bool is_whole = token.kind == Kind::whole;
  if ((is_whole ? std::from_chars(begin, end, whole) : std::from_chars(begin, end, real)).ec != std::errc())
    fail("the number " + token.text + " is too large");
  node->value = is_whole ? Value(whole) : Value(real);
  return node;
}

ExpressionPtr ExpressionParser::list() {
  auto node = made<ListOf>();
  take();
  while (!sees_symbol("]")) {
    if (!node->items.empty()) expect_symbol(",");
    if (sees_symbol("]")) break;
    node->items.push_back(part_of(*node, expression()));
  }
  take();
  return node;
}

ExpressionPtr ExpressionParser::dict() {
  auto node = made<DictOf>();
  take();
  while (!sees_symbol("}")) {
    if (!node->entries.empty()) expect_symbol(",");
    if (sees_symbol("}")) break;
    ExpressionPtr key = part_of(*node, expression());
    expect_symbol(":");
    node->entries.emplace_back(std::move(key), part_of(*node, expression()));
  }
  take();
  return node;
}

}  // namespace gputrain::chat
