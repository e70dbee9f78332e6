// Data sets of axolotl's jobs.
#include <algorithm>
#include <array>

#include "moving.hpp"

namespace gputrain::app::foreign {
namespace {

using config::Node;

const char* const kOneDataSet =
    "a job has one data set: put the files into one folder or pattern, with the same columns";

std::string text_in(const Node& map, const char* key) {
  const Node* part = map.find(key);
  return part != nullptr && part->kind == Node::Kind::scalar ? part->text : "";
}

/// Sets the names of the columns that a data set has in the place of the usual ones.
void set_columns(Moving& job, const Node& data) {
  constexpr std::array<std::pair<const char*, const char*>, 6> kColumns{{{"field_messages", "messages"},
                                                                         {"field", "text"},
                                                                         {"text_column", "text"},
                                                                         {"field_chosen", "chosen"},
                                                                         {"field_rejected", "rejected"},
                                                                         {"field_prompt", "prompt"}}};
  const bool is_preference = job.has("rl") || job.is_on("reward_model");
  for (const auto& [theirs, ours] : kColumns) {
    const std::string name = text_in(data, theirs);
    const std::string column = is_preference && std::string_view(ours) == "messages" ? "prompt" : ours;
    const bool is_usual = name == column || (column == "messages" && name == "conversations");
    if (!name.empty() && !is_usual) job.set_text("data.text.columns." + column, name);
  }
}

/// What of a conversation is learned, said of one data set.
void set_learned(Moving& job, const Node& data, const std::string& place) {
  if (const Node* roles = data.find("roles_to_train")) {
    Node bare = *roles;
    bare.key.clear();
    if (!is_off(bare)) job.set("data.text.roles_to_train", config::to_flow(bare));
  }
  if (const std::string eos = text_in(data, "train_on_eos"); !eos.empty()) job.set("data.text.train_on_eos", eos);
  for (const char* key : {"message_field_training", "message_field_training_detail"})
    if (const std::string field = text_in(data, key); !field.empty() && field != "train" && field != "weight")
      job.remark(place + "." + key + ": a message is left out by train: false or weight: 0 here.");
}

/// Refuses forms of records whose text nothing here would make.
void set_form(Moving& job, const Node& data, const std::string& place) {
  const Node* type = data.find("type");
  if (type == nullptr || type->kind == Node::Kind::null) return;
  if (type->kind == Node::Kind::map) {
    set_columns(job, *type);
    job.remark(place +
               ".type has formats of its own: write them as a chat template, a .jinja file in "
               "data.text.chat_template.");
    return;
  }
  const std::string form = type->text.substr(0, type->text.find_first_of(".:"));
  if (form == "alpaca" || form == "alpaca_w_system")
    return job.set("data.text.chat_template", "alpaca", "the prompts of type: " + type->text);
  constexpr std::array kRead{"chat_template", "sharegpt", "completion", "pretrain", "chatml",       "llama3",
                             "orpo",          "zephyr",   "ultra",      "intel",    "bradley_terry"};
  if (std::ranges::find(kRead, form) == kRead.end())
    job.remark(place + ".type: " + type->text +
               ": gputrain has no form of that name; `gputrain data show` shows what "
               "it makes of the records.");
  if (form == "bradley_terry")
    job.remark(place + ".type: " + type->text +
               " reads the columns input, chosen and rejected: call the first one question, and the chat template "
               "writes it here, too.");
  if (type->text.find("argilla") != std::string::npos) {
    job.set("data.text.columns.chosen", "chosen_response");
    job.set("data.text.columns.rejected", "rejected_response");
  }
  if (form == "chatml" || form == "llama3") job.otherwise("data.text.chat_template", form, "");
}

}  // namespace

void move_axolotl_data(Moving& job, const std::string& dotted, const Node& value) {
  const bool is_val = dotted == "test_datasets";
  const Node& first = value.kind == Node::Kind::list && !value.parts.empty() ? value.parts.front() : value;
  if (value.parts.size() > 1 && value.kind == Node::Kind::list) {
    job.remark(dotted + ": the first of " + std::to_string(value.parts.size()) + ". " + kOneDataSet + ".");
    for (size_t i = 1; i < value.parts.size(); ++i)
      job.remark("  left out: " + config::to_flow(value.parts[i]).substr(0, 90));
  }
  const Node* files = first.find("data_files");
  std::string name = text_in(first, "path");
  if (files != nullptr && files->kind != Node::Kind::null)
    name = files->kind == Node::Kind::scalar ? files->text : files->parts.empty() ? name : files->parts.front().text;
  const std::string kind = text_in(first, "ds_type").empty() ? text_in(first, "path") : text_in(first, "ds_type");
  set_data(job, is_val ? "val" : "train", name, text_in(first, "split"), text_in(first, "name"), kind);
  if (is_val) return;
  set_form(job, first, dotted + "[0]");
  set_columns(job, first);
  set_learned(job, first, dotted + "[0]");
  set_chat_template(job, "chat_template", text_in(first, "chat_template"));
  if (const std::string type = text_in(first, "type"); dotted == "pretraining_dataset" || type == "completion")
    job.set("data.text.loss_on", "all");
  constexpr std::array kRead{"path",
                             "type",
                             "split",
                             "name",
                             "data_files",
                             "ds_type",
                             "field",
                             "field_messages",
                             "text_column",
                             "field_chosen",
                             "field_rejected",
                             "field_prompt",
                             "roles_to_train",
                             "train_on_eos",
                             "message_field_training",
                             "message_field_training_detail",
                             "chat_template",
                             "trust_remote_code"};
  for (const Node& part : first.parts) {
    if (std::ranges::find(kRead, part.key) != kRead.end() || part.kind == Node::Kind::null) continue;
    if (part.key == "message_property_mappings" || part.key == "roles" || part.key.starts_with("message_field_"))
      continue;  // role and content, from and value: all are read
    job.remark(dotted + "[0]." + part.key + ": " + config::to_flow(part) + " is not used.");
  }
}

}  // namespace gputrain::app::foreign
