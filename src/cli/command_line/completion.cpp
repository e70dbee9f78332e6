#include "completion.hpp"

#include <algorithm>

namespace gputrain::app {
namespace {

using Words = std::vector<std::string>;

bool is_shown(const std::string& group) { return !group.empty(); }

const CLI::App* verb_named(const CLI::App& app, const std::string& name) {
  for (const CLI::App* verb : app.get_subcommands({}))
    if (is_shown(verb->get_group()) && verb->get_name() == name) return verb;
  return nullptr;
}

const CLI::Option* option_named(const CLI::App& app, const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return nullptr;
  return app.get_option_no_throw(word.substr(0, word.find('=')));
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// Reads the choices from the type that help shows: "TEXT:{train,val,test}".
Words choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

Words verbs_of(const CLI::App& app) {
  Words names;
  for (const CLI::App* verb : app.get_subcommands({}))
    if (is_shown(verb->get_group())) names.push_back(verb->get_name());
  return names;
}

Words options_of(const CLI::App& app) {
  Words names;
  for (const CLI::Option* option : app.get_options()) {
    if (!is_shown(option->get_group())) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// Shortens keys to the part up to the next dot, "optimizer.lr" to "optimizer.", so that a list stays short.
Words settings(const Words& keys, const std::string& word) {
  Words found;
  for (const std::string& key : keys) {
    if (!key.starts_with(word)) continue;
    const size_t dot = key.find('.', word.size());
    found.push_back(dot == std::string::npos ? key + "=" : key.substr(0, dot + 1));
  }
  return found;
}

}  // namespace

Words completions(const CLI::App& app, const Words& words, const std::function<Words(const std::string& kind)>& names) {
  const std::string word = words.empty() ? "" : words.back();
  const CLI::App* verb = &app;
  const CLI::Option* waits = nullptr;  // option whose value comes next
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (waits != nullptr) {
      waits = nullptr;
      continue;
    }
    const CLI::App* next = verb_named(*verb, words[i]);
    if (next == nullptr && verb->get_name() == "launch") next = verb_named(app, words[i]);  // command of every rank
    if (next != nullptr) verb = next;
    const CLI::Option* option = option_named(*verb, words[i]);
    if (option != nullptr && takes_value(*option) && words[i].find('=') == std::string::npos) waits = option;
  }
  Words found;
  if (waits != nullptr) {
    found = waits->get_name() == "--set" ? settings(names("keys"), word) : choices_of(*waits);
  } else if (word.starts_with("-")) {
    found = options_of(*verb);
  } else if (verb->get_name() == "describe") {
    found = names("entries");
    const Words keys = settings(names("keys"), word);
    for (const std::string& key : keys) found.push_back(key.ends_with('=') ? key.substr(0, key.size() - 1) : key);
  } else if (verb->get_name() == "list") {
    found = names("kinds");
  } else if (verb->get_name() == "launch") {
    found = {"run", "eval", "bench"};
  } else {
    found = verbs_of(*verb);
    for (const CLI::Option* option : verb->get_options([](const CLI::Option* one) { return one->get_positional(); })) {
      const Words choices = choices_of(*option);
      found.insert(found.end(), choices.begin(), choices.end());
    }
  }
  std::erase_if(found, [&](const std::string& one) { return !one.starts_with(word); });
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  const Words all = found;
  std::erase_if(found, [&](const std::string& one) {  // a group with keys of its own
    return one.ends_with('=') && std::ranges::binary_search(all, one.substr(0, one.size() - 1) + ".");
  });
  return found;
}

std::string completion_script(const std::string& shell) {
  if (shell == "zsh")
    return R"sh(# eval "$(gputrain completion zsh)"     in ~/.zshrc, after compinit
_gputrain() {
  local -a found
  found=("${(@f)$("${words[1]}" complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -z "${found[*]}" ]]; then
    _files
  else
    compadd -S '' -- ${(M)found:#*[.=]}
    compadd -- ${found:#*[.=]}
  fi
}
compdef _gputrain gputrain
)sh";
  if (shell == "fish")
    return R"sh(# gputrain completion fish | source     in ~/.config/fish/config.fish
function __gputrain_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] complete $words[2..-1] 2>/dev/null)
    if test -n "$found"
        string join \n -- $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command gputrain --no-files --arguments '(__gputrain_complete)'
)sh";
  return R"sh(# eval "$(gputrain completion bash)"     in ~/.bashrc
_gputrain() {
  local line=${COMP_LINE:0:COMP_POINT}
  local -a words
  read -r -a words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  while [[ ${words[0]} == *=* ]]; do words=("${words[@]:1}"); done
  mapfile -t COMPREPLY < <("${words[0]/#\~/$HOME}" complete "${words[@]:1}" 2>/dev/null)
  [[ ${COMPREPLY[0]} == *[.=] ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -o default -F _gputrain gputrain
)sh";
}

}  // namespace gputrain::app
