#include "gputrain/config/settings_file.hpp"

#include "layers.hpp"

namespace gputrain::config {
namespace {

void collect(const Node& node, const std::string& dotted, std::map<std::string, std::string>& settings) {
  if (node.kind != Node::Kind::map) {
    settings[dotted] = to_flow(node);
    return;
  }
  for (const Node& part : node.parts) collect(part, dotted.empty() ? part.key : dotted + "." + part.key, settings);
}

}  // namespace

std::map<std::string, std::string> recorded_settings(const std::filesystem::path& file) {
  Budget budget;
  Problems problems;
  const Request request{.file = file, .environment = [](const std::string&) { return std::optional<std::string>(); }};
  const std::optional<Layers> layers = read_layers(request, budget, problems);
  if (!layers || !layers->is_whole) throw SpecError(problems.take());
  std::map<std::string, std::string> settings;
  collect(layers->job, {}, settings);
  return settings;
}

Node document(const std::string& text, const std::string& name) {
  Budget budget;
  Problems problems;
  std::optional<Node> root =
      parse_yaml(std::make_shared<const Source>(Source{.name = name, .text = text}), budget, problems);
  if (!root || problems.count() > 0) throw SpecError(problems.take());
  return *std::move(root);
}

}  // namespace gputrain::config
