#include "gputrain/chat/template.hpp"

#include "gputrain/core/error.hpp"
#include "jinja/render.hpp"
#include "jinja/syntax/parser.hpp"
#include "jinja/values/text.hpp"

namespace gputrain::chat {

Template::Template(std::shared_ptr<const Program> program, std::string source)
    : program_(std::move(program)), source_(std::make_shared<const std::string>(std::move(source))) {}

Template Template::parse(const std::string& source, std::string name) {
  if (!is_utf8(source))
    throw Error(ExitCode::data, {.what = "this chat template is not UTF-8 text", .where = std::move(name)});
  return Template(parsed(source, name), source);
}

Rendered Template::render(const nlohmann::ordered_json& variables) const { return Render(*program_, variables).run(); }

bool Template::marks_generated() const noexcept { return program_->has_generation; }
const std::string& Template::name() const noexcept { return program_->name; }

}  // namespace gputrain::chat
