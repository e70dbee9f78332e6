#include "command_line_error.hpp"

#include <algorithm>
#include <map>

#include "gputrain/config/names.hpp"

namespace gputrain::app {
namespace {

using Words = std::vector<std::string>;

Error usage_error(std::string what, std::string hint) {
  return Error(ExitCode::usage, {.what = std::move(what), .hint = std::move(hint)});
}

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

std::string found_in(const std::map<std::string, std::string>& answers, const std::string& word) {
  const auto found = answers.find(word);
  return found == answers.end() ? "" : found->second;
}

/// Finds the innermost subcommand, and its full name in `path`.
const CLI::App& deepest(const CLI::App& app, std::string& path) {
  const CLI::App* verb = &app;
  path = app.get_name();
  while (!verb->get_subcommands().empty()) {
    verb = verb->get_subcommands().front();
    path += " " + verb->get_name();
  }
  return *verb;
}

/// Returns the first word that the parser did not accept.
std::string first_unread(const CLI::App& app, const Words& words) {
  const Words unread = app.remaining(true);
  const auto found = std::find_if(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(unread.begin(), unread.end(), word) != unread.end();
  });
  return found == words.end() ? "" : *found;
}

Words verbs_of(const CLI::App& app) {
  Words names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
    names.push_back(verb->get_name());
  return names;
}

std::string list_of(const Words& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ", ") + word;
  return list;
}

bool contains(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Error verb_error(const CLI::App& app, const std::string& path, const std::string& word) {
  static const std::map<std::string, std::string> kOthers{
      {"train", "run"},      {"fit", "run"},      {"resume", "run"}, {"test", "eval"}, {"evaluate", "eval"},
      {"check", "validate"}, {"info", "version"}, {"list", "ls"},    {"rm", "prune"},  {"delete", "prune"}};
  const Words verbs = verbs_of(app);
  const std::string all = "one of " + list_of(verbs) + "; `" + path + " --help` explains them";
  if (word.empty()) return usage_error("`" + path + "` needs a subcommand", all);
  const std::string other = found_in(kOthers, word);
  std::string hint = config::did_you_mean(word, verbs);
  if (contains(verbs, other)) hint = "`" + path + " " + other + "`";
  if (contains(verbs, "run") && (word.ends_with(".yaml") || word.ends_with(".yml")))
    hint = "`" + path + " run " + word + "`";
  return usage_error("`" + path + "` has no subcommand '" + word + "'", hint.empty() ? all : hint);
}

Error option_error(const CLI::App& verb, const std::string& path, const std::string& word) {
  static const std::map<std::string, std::string> kOthers{{"--samples", "--limit"},     {"--num-samples", "--limit"},
                                                          {"--max-samples", "--limit"}, {"--rows", "--limit"},
                                                          {"--count", "--limit"},       {"-n", "--limit"},
                                                          {"--split", "--on"}};
  const std::string name = word.substr(0, word.find('='));
  Words names;
  for (const CLI::Option* option : verb.get_options()) {
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
  }
  if (contains(names, name))
    return usage_error("the option '" + name + "' stands before `" + verb.get_name() + "`", "put it after");
  const std::string other = found_in(kOthers, name);
  std::string hint = contains(names, other) ? "did you mean '" + other + "'?" : config::did_you_mean(name, names);
  if (hint.empty() && contains(names, "--set")) hint = "set keys of the job with --set train.max_steps=100;";
  return usage_error("`" + path + "` has no option '" + name + "'",
                     hint + (hint.empty() ? "" : " ") + "`" + path + " --help` lists them");
}

}  // namespace

Error command_line_error(const CLI::App& app, const CLI::ParseError& failure, const Words& words) {
  std::string path;
  const CLI::App& verb = deepest(app, path);
  const std::string unread = first_unread(app, words);
  if (is_option(unread)) return option_error(verb, path, unread);
  if (!verbs_of(verb).empty()) return verb_error(verb, path, unread);
  const std::string help = "`" + path + " --help` explains what it takes";
  if (!unread.empty()) {
    const bool is_setting = unread.find('=') != std::string::npos && verb.get_option_no_throw("--set") != nullptr;
    return usage_error("`" + path + "` does not take '" + unread + "'", is_setting ? "--set " + unread : help);
  }
  return usage_error("`" + path + "`: " + failure.what(), help);
}

Error launched_command_error(const CLI::App& launch, const Words& words) {
  static const std::map<std::string, std::string> kOthers{
      {"--master-port", "set it as a key of the job: gputrain launch run job.yaml --set launch.master_port=29500"},
      {"--master-addr", "leave it out: ranks connect to the first of --hosts"},
      {"--node-rank",
       "leave it out: launch starts all --hosts itself; if a scheduler starts it on each node, set PET_NODE_RANK"},
      {"--standalone", "leave it out: without --hosts all ranks run on this host"},
      {"--no-python", "leave it out"},
      {"--rdzv-backend", "leave it out"},
      {"--rdzv-endpoint", "leave it out"},
      {"--rdzv-id", "leave it out"},
      {"-n", "--nproc-per-node"},
      {"-np", "--nproc-per-node"},
      {"-H", "--hosts"}};
  const std::string example = "gputrain launch --nproc-per-node 2 run job.yaml";
  if (words.empty()) return usage_error("launch needs the command that every rank runs", example);
  const std::string started = words[0] + (words[0] == "bench" && words.size() > 1 ? " " + words[1] : "");
  if (!is_option(words[0]))
    return usage_error("launch starts ranks of `run`, `eval`, `replay` or `bench comm`, not of '" + started + "'",
                       example);
  std::string name = words[0].substr(0, words[0].find('='));
  std::replace(name.begin(), name.end(), '_', '-');
  const std::string answer = found_in(kOthers, name);
  if (!answer.empty()) return usage_error("launch has no option '" + words[0] + "'", answer);
  return option_error(launch, "gputrain launch", words[0]);
}

}  // namespace gputrain::app
