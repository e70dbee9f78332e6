// Command lines in shell scripts: `python train.py DATA --model resnet50 --amp`.
#include <algorithm>
#include <array>
#include <cctype>

#include "gputrain/config/problem.hpp"
#include "gputrain/config/settings_file.hpp"
#include "moving.hpp"

namespace gputrain::app::foreign {
namespace {

using config::Node;

/// Splits a script into commands of words, as a shell does: quotes, comments, lines that go on after a backslash. A
/// variable stays as it is written.
std::vector<std::vector<std::string>> commands_of(const std::string& script) {
  std::vector<std::vector<std::string>> commands(1);
  std::string word;
  bool is_open = false;
  char quote = 0;
  const auto end_word = [&] {
    if (is_open) commands.back().push_back(word);
    word.clear();
    is_open = false;
  };
  for (size_t i = 0; i < script.size(); ++i) {
    const char c = script[i];
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      is_open = true;
    } else if (c == '\\' && i + 1 < script.size()) {
      ++i;
      if (script[i] == '\r' && i + 1 < script.size()) ++i;
      if (script[i] == '\n') {
        end_word();
      } else {
        word += script[i];
        is_open = true;
      }
    } else if (c == '#' && !is_open) {
      while (i + 1 < script.size() && script[i + 1] != '\n') ++i;
    } else if (c == '\n' || c == ';' || c == '&' || c == '|') {
      end_word();
      if (!commands.back().empty()) commands.emplace_back();
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      end_word();
    } else {
      word += c;
      is_open = true;
    }
  }
  end_word();
  return commands;
}

/// Returns the name of a file without the folders before it.
std::string file_name(const std::string& path) {
  return path.substr(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/') + 1);
}

bool is_program(const std::string& word) {
  if (const std::string name = file_name(word); name.starts_with("run_") && name.ends_with(".py")) return true;
  const auto ends = [&](const std::string& name) { return word == name || word.ends_with("/" + name); };
  for (const char* name : {"train.py", "sft.py", "dpo.py", "kto.py", "orpo.py", "reward.py", "reward_modeling.py",
                           "distributed_train.sh", "trl"})
    if (ends(name)) return true;
  return false;
}

bool is_option(const std::string& word) {
  if (word.find_first_not_of('-') == std::string::npos) return false;
  return word.size() > 1 && word[0] == '-' && std::isdigit(static_cast<unsigned char>(word[1])) == 0 && word[1] != '.';
}

/// Returns a word as YAML; one that is none, as text.
Node scalar(const std::string& text) {
  Node node;
  try {
    node = config::document(text, "the command line");
  } catch (const config::SpecError&) {
    node.quoted = true;
  }
  if (node.kind == Node::Kind::scalar || node.kind == Node::Kind::null) {
    node.kind = Node::Kind::scalar;
    node.text = text;
  }
  return node;
}

/// Long names of timm's short options.
std::string long_name(const std::string& option) {
  for (const auto& [name, meaning] : {std::pair("-b", "batch_size"),
                                      {"-vb", "validation_batch_size"},
                                      {"-j", "workers"},
                                      {"-d", "dataset"},
                                      {"-c", "config"},
                                      {"--dr", "decay_rate"},
                                      {"--bs", "batch_size"}})
    if (option == name) return meaning;
  std::string name = option.substr(option.find_first_not_of('-'));
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}

/// Returns whether several words may follow an option of timm, TRL or transformers.
bool has_several_values(const std::string& name) {
  constexpr std::array kNames{"input_size",
                              "mean",
                              "std",
                              "scale",
                              "ratio",
                              "opt_betas",
                              "lr_noise",
                              "decay_milestones",
                              "cutmix_minmax",
                              "opt_kwargs",
                              "model_kwargs",
                              "lora_target_modules",
                              "lora_modules_to_save",
                              "loss_type",
                              "loss_weights",
                              "report_to",
                              "label_names",
                              "optim_target_modules",
                              "include_for_metrics"};
  return std::ranges::find(kNames, name) != kNames.end();
}

}  // namespace

Node read_command_line(const std::string& script) {
  Node root;
  root.kind = Node::Kind::map;
  const auto add = [&](const std::string& key, Node value) {
    Node* known = root.find(key);
    if (known == nullptr) {
      root.parts.emplace_back();
      known = &root.parts.back();
    }
    *known = std::move(value);
    known->key = key;
  };
  for (const std::vector<std::string>& words : commands_of(script)) {
    size_t at = 0;
    while (at < words.size() && !is_program(words[at])) ++at;
    if (at == words.size()) continue;
    std::string program = file_name(words[at]);
    ++at;
    if (program == "trl" && at < words.size()) program = words[at++] + ".py";
    if (program == "distributed_train.sh") {
      program = "train.py";
      if (at < words.size() && std::isdigit(static_cast<unsigned char>(words[at][0])) != 0) ++at;  // number of GPUs
    }
    add("program", scalar(program));
    while (at < words.size()) {
      if (!is_option(words[at])) {
        add("positional", scalar(words[at++]));
        continue;
      }
      std::string option = words[at++];
      std::vector<std::string> values;
      if (const size_t equals = option.find('='); equals != std::string::npos) {
        values.push_back(option.substr(equals + 1));
        option = option.substr(0, equals);
      } else {
        const bool takes_several = has_several_values(long_name(option));
        while (at < words.size() && !is_option(words[at]) && (values.empty() || takes_several))
          values.push_back(words[at++]);
      }
      Node value;
      if (values.size() == 1) {
        value = scalar(values.front());
      } else if (values.empty()) {
        value = scalar("true");
      } else {
        value.kind = Node::Kind::list;
        for (const std::string& each : values) value.parts.push_back(scalar(each));
      }
      std::string name = long_name(option);
      if (values.empty() && name.starts_with("no_") && name != "no_aug" && name != "no_prefetcher" &&
          name != "no_resume_opt" && name != "no_ddp_bb" && name != "no_cuda") {
        name = name.substr(3);
        value = scalar("false");
      }
      add(name, std::move(value));
    }
    return root;
  }
  return root;
}

}  // namespace gputrain::app::foreign
