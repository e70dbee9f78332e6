#include "parser.hpp"

#include <algorithm>
#include <array>

#include "expression_parser.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"

namespace gputrain::chat {
namespace {

using Kind = Token::Kind;
using Words = std::initializer_list<std::string_view>;

/// Reads statements.
class StatementParser : private ExpressionParser {
 public:
  explicit StatementParser(std::string_view source) : ExpressionParser(source) {}

  Program run() {
    Program program;
    program.body = block({}, "", 1);
    program.names = std::move(names_);
    program.has_generation = has_generation_;
    return program;
  }

 private:
  template <class Node>
  std::unique_ptr<Node> made() const {
    auto node = std::make_unique<Node>();
    node->line = current().line;
    return node;
  }

  /// Statements until a tag whose first word is one of `ends`; that word is not taken. `opened` began at `line`.
  Block block(Words ends, std::string_view opened, int line);
  /// Parses the same, and the tag that ends it.
  Block whole_block(std::string_view end, std::string_view opened, int line);
  std::unique_ptr<Statement> output();
  std::unique_ptr<Statement> statement();
  std::unique_ptr<Statement> if_statement();
  std::unique_ptr<Statement> for_statement();
  std::unique_ptr<Statement> set_statement();
  std::unique_ptr<Statement> macro_statement();
  std::unique_ptr<Statement> generation_statement();
  std::unique_ptr<Statement> jump_statement();
  void read_parameters(MacroDefinition& macro);
  Target target(bool with_attribute);
  Target one_target(bool with_attribute);
  void end_tag();

  struct Surroundings {
    bool in_loop = false;
    bool captured = false;  // the text goes to a variable first
  };
  Surroundings surroundings_;
  bool has_generation_ = false;
};

void StatementParser::end_tag() {
  if (current().kind != Kind::block_end) fail_unexpected();
  take();
}

Block StatementParser::block(Words ends, std::string_view opened, int line) {
  const Level level(*this);
  Block statements;
  while (true) {
    if (current().kind == Kind::end) {
      if (ends.size() == 0) return statements;
      throw SyntaxProblem{"'" + std::string(opened) + "' has no end", line};
    }
    if (current().kind == Kind::data) {
      auto data = made<Data>();
      data->text = take().text;
      statements.push_back(std::move(data));
    } else if (current().kind == Kind::output_begin) {
      statements.push_back(output());
    } else {
      take();
      if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return sees_word(end); }))
        return statements;
      statements.push_back(statement());
    }
  }
}

Block StatementParser::whole_block(std::string_view end, std::string_view opened, int line) {
  Block statements = block({end}, opened, line);
  take();
  end_tag();
  return statements;
}

std::unique_ptr<Statement> StatementParser::output() {
  auto node = made<Output>();
  take();
  node->value = tuple();
  if (current().kind != Kind::output_end) fail_unexpected();
  take();
  return node;
}

std::unique_ptr<Statement> StatementParser::statement() {
  if (sees_word("if")) return if_statement();
  if (sees_word("for")) return for_statement();
  if (sees_word("set")) return set_statement();
  if (sees_word("macro")) return macro_statement();
  if (sees_word("generation")) return generation_statement();
  if (sees_word("break") || sees_word("continue")) return jump_statement();
  if (current().kind != Kind::name) fail_unexpected();
  constexpr std::array<std::string_view, 12> kOthers = {"call",   "filter", "with",  "block", "extends",    "include",
                                                        "import", "from",   "trans", "do",    "autoescape", "debug"};
  const bool is_known = std::find(kOthers.begin(), kOthers.end(), current().text) != kOthers.end();
  fail((is_known ? "the statement is not supported: '" : "no statement is called '") + printable(current().text) + "'");
}

std::unique_ptr<Statement> StatementParser::if_statement() {
  auto node = made<If>();
  do {
    take();
    ExpressionPtr condition = tuple(false);
    end_tag();
    node->branches.emplace_back(std::move(condition), block({"elif", "else", "endif"}, "if", node->line));
  } while (sees_word("elif"));
  if (take_word("else")) {
    end_tag();
    node->otherwise = block({"endif"}, "if", node->line);
  }
  take();
  end_tag();
  return node;
}

std::unique_ptr<Statement> StatementParser::for_statement() {
  auto node = made<For>();
  take();
  node->target = target(false);
  if (!take_word("in")) fail("expected 'in' after the variables of 'for'");
  node->items = tuple(false);
  if (take_word("if")) node->condition = expression();
  if (sees_word("recursive")) fail("recursive loops are not supported");
  end_tag();
  const Surroundings outside = surroundings_;
  const bool outer_loop = std::exchange(special_.loop, false);
  surroundings_.in_loop = true;
  node->body = block({"else", "endfor"}, "for", node->line);
  surroundings_ = outside;
  node->uses_loop = std::exchange(special_.loop, outer_loop);
  node->loop_id = id_of("loop");
  if (take_word("else")) {
    end_tag();
    node->otherwise = block({"endfor"}, "for", node->line);
  }
  take();
  end_tag();
  return node;
}

Target StatementParser::one_target(bool with_attribute) {
  if (take_symbol("(")) {
    Target inner = target(with_attribute);
    expect_symbol(")");
    return inner;
  }
  const std::string name = expect_name("a variable");
  for (const char* word : {"true", "false", "none", "True", "False", "None"})
    if (name == word) fail("cannot assign to '" + name + "'");
  Target one{.id = id_of(name)};
  if (!with_attribute || !take_symbol(".")) return one;
  one.kind = Target::Kind::attribute;
  one.attribute = expect_name("an attribute");
  return one;
}

Target StatementParser::target(bool with_attribute) {
  const Level level(*this);
  Target first = one_target(with_attribute);
  if (!sees_symbol(",")) return first;
  Target all{.kind = Target::Kind::tuple};
  all.parts.push_back(std::move(first));
  while (take_symbol(",")) {
    if (sees_word("in") || sees_symbol("=") || sees_symbol(")")) break;
    all.parts.push_back(one_target(with_attribute));
  }
  return all;
}

std::unique_ptr<Statement> StatementParser::set_statement() {
  auto value = made<SetValue>();
  auto captured = made<SetBlock>();
  take();
  Target to = target(true);
  if (take_symbol("=")) {
    value->target = std::move(to);
    value->value = tuple();
    end_tag();
    return value;
  }
  captured->target = std::move(to);
  while (take_symbol("|")) captured->filters.push_back(filter(nullptr));
  end_tag();
  const Surroundings outside = surroundings_;
  surroundings_.captured = true;
  captured->body = whole_block("endset", "set", captured->line);
  surroundings_ = outside;
  return captured;
}

void StatementParser::read_parameters(MacroDefinition& macro) {
  expect_symbol("(");
  while (!take_symbol(")")) {
    if (!macro.parameters.empty()) expect_symbol(",");
    const std::string name = expect_name("a parameter");
    MacroDefinition::Parameter parameter{.id = id_of(name), .name = name, .otherwise = nullptr};
    if (take_symbol("=")) {
      parameter.otherwise = expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().otherwise) {
      fail("a parameter without default follows one with a default");
    }
    macro.parameters.push_back(std::move(parameter));
  }
}

std::unique_ptr<Statement> StatementParser::macro_statement() {
  auto node = made<MacroDefinition>();
  take();
  node->name = expect_name("a macro");
  node->id = id_of(node->name);
  read_parameters(*node);
  end_tag();
  const Surroundings outside = surroundings_;
  const SpecialNames around = std::exchange(special_, {});
  surroundings_ = {.in_loop = false, .captured = true};
  node->body = whole_block("endmacro", "macro", node->line);
  surroundings_ = outside;
  if (special_.varargs) node->varargs = id_of("varargs");
  if (special_.kwargs) node->kwargs = id_of("kwargs");
  special_.loop |= around.loop;
  special_.varargs |= around.varargs;
  special_.kwargs |= around.kwargs;
  return node;
}

std::unique_ptr<Statement> StatementParser::generation_statement() {
  auto node = made<Generation>();
  if (surroundings_.captured) fail("'generation' inside of a macro, of a block 'set' or of itself is not supported");
  take();
  end_tag();
  const Surroundings outside = surroundings_;
  surroundings_ = {.in_loop = false, .captured = true};
  node->body = whole_block("endgeneration", "generation", node->line);
  surroundings_ = outside;
  has_generation_ = true;
  return node;
}

std::unique_ptr<Statement> StatementParser::jump_statement() {
  auto node = made<Jump>();
  node->flow = sees_word("break") ? Flow::leaves_loop : Flow::next_iteration;
  if (!surroundings_.in_loop) fail("'" + current().text + "' outside of a loop");
  take();
  end_tag();
  return node;
}

}  // namespace

std::shared_ptr<const Program> parsed(const std::string& source, const std::string& name) {
  try {
    auto program = std::make_shared<Program>(StatementParser(source).run());
    program->name = name;
    return program;
  } catch (const SyntaxProblem& problem) {
    throw Error(ExitCode::data, {.what = "this chat template cannot be read: " + printable(problem.what),
                                 .where = name + ":" + std::to_string(problem.line),
                                 .hint = "it must be what transformers' apply_chat_template() takes"});
  }
}

}  // namespace gputrain::chat
