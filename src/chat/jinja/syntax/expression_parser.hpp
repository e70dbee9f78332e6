// Reads the expressions of a template; its base, the stream of tokens, also serves statements.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../nodes.hpp"
#include "lexer.hpp"

namespace gputrain::chat {

/// With Jinja's precedences. Throws SyntaxProblem.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view source) : tokens_(tokens_of(source)) {}

 protected:
  /// Bounds how deep expressions and statements are nested.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool sees_symbol(std::string_view text) const { return current().is(Token::Kind::symbol, text); }
  bool sees_word(std::string_view text) const { return current().is(Token::Kind::name, text); }
  bool take_symbol(std::string_view text);
  bool take_word(std::string_view text);
  void expect_symbol(std::string_view text);
  std::string expect_name(const char* of_what);
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_unexpected() const;

  size_t id_of(const std::string& name);

  ExpressionPtr expression();                    // with an inline `if`
  ExpressionPtr expression_without_condition();  // without
  /// Expressions with commas between are a tuple. Ends before `end`, if given, or the end of the tag.
  ExpressionPtr tuple(bool with_condition = true);
  ExpressionPtr primary();
  std::unique_ptr<Applied> filter(ExpressionPtr operand);

  /// The names with a meaning of their own that were read since this was last cleared.
  struct SpecialNames {
    bool loop = false, varargs = false, kwargs = false;
  };

  std::vector<std::string> names_;
  SpecialNames special_;

 private:
  template <class Node>
  std::unique_ptr<Node> made() const {
    auto node = std::make_unique<Node>();
    node->line = current().line;
    return node;
  }
  /// Becomes a part of `parent`.
  ExpressionPtr part_of(Expression& parent, ExpressionPtr part) const;

  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr binary(Arithmetic operation, ExpressionPtr left, ExpressionPtr right) const;
  ExpressionPtr word();
  ExpressionPtr strings();
  ExpressionPtr number();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr object);
  ExpressionPtr filters_and_tests(ExpressionPtr operand);
  ExpressionPtr attribute(ExpressionPtr object);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr slice(ExpressionPtr object, ExpressionPtr start);
  ExpressionPtr invocation(ExpressionPtr callee);
  ExpressionPtr test(ExpressionPtr operand);
  void read_arguments(Expression& parent, ArgumentList& arguments);
  std::string dotted_name(const char* of_what);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0;
  std::unordered_map<std::string, size_t> ids_;
};

}  // namespace gputrain::chat
