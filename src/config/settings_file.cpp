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
  const std::optional<Node> job = read_layers(request, budget, problems);
  if (!job) throw SpecError(problems.take());
  std::map<std::string, std::string> settings;
  collect(*job, {}, settings);
  return settings;
}

}  // namespace gputrain::config
