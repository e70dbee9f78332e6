// Chat templates of language models: Jinja as transformers' apply_chat_template() runs it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gputrain::chat {

struct Program;

/// Bytes of a text, from `begin` up to but not including `end`.
struct Range {
  size_t begin, end;
  bool operator==(const Range&) const = default;
};

/// Bytes that a template wrote while it went through "messages" and stood at this one.
struct Written {
  Range range;
  size_t message;
};

struct Rendered {
  std::string text;
  std::vector<Range> generated;  // text of `{% generation %}` blocks
  std::vector<Written> written;  // in order, apart from each other; the rest was written outside of such loops
};

/// Immutable, so thread-safe.
class Template {
 public:
  /// Parses a template; `name` is for messages. Throws Error(data) with the line and what is wrong or not supported.
  static Template parse(const std::string& source, std::string name);

  /// Renders with an object's keys as variables. Throws Error(data) that names the line: if the template raises, if
  /// Python would raise, and if work, memory or nesting pass their bounds.
  Rendered render(const nlohmann::ordered_json& variables) const;

  /// Returns whether it says by `{% generation %}` what the assistant says.
  bool marks_generated() const noexcept;
  const std::string& name() const noexcept;
  const std::string& source() const noexcept { return *source_; }

 private:
  Template(std::shared_ptr<const Program> program, std::string source);

  std::shared_ptr<const Program> program_;
  std::shared_ptr<const std::string> source_;
};

}  // namespace gputrain::chat
