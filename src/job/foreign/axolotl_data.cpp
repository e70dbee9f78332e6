// Data sets of axolotl's jobs.
#include <algorithm>
#include <array>

#include "moving.hpp"

namespace gputrain::app::foreign {
namespace {

using config::Node;

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
      job.tell(place + "." + key, field, "a message is left out by train: false or weight: 0 here");
}

/// Refuses forms of records whose text nothing here would make.
void set_form(Moving& job, const Node& data, const std::string& place) {
  const Node* type = data.find("type");
  if (type == nullptr || type->kind == Node::Kind::null) return;
  if (type->kind == Node::Kind::map) {
    set_columns(job, *type);
    return job.tell(place + ".type", config::to_flow(*type),
                    "formats of its own are written as a chat template, a .jinja file in data.text.chat_template");
  }
  const std::string form = type->text.substr(0, type->text.find_first_of(".:"));
  if (form == "alpaca" || form == "alpaca_w_system")
    return job.set("data.text.chat_template", "alpaca", "the prompts of type: " + type->text);
  constexpr std::array kRead{"chat_template", "sharegpt", "completion", "pretrain", "chatml",       "llama3",
                             "orpo",          "zephyr",   "ultra",      "intel",    "bradley_terry"};
  if (std::ranges::find(kRead, form) == kRead.end())
    job.tell(place + ".type", type->text,
             "no form of that name is known here; `gputrain data show JOB` shows what is made of the records");
  if (form == "bradley_terry")
    job.tell(place + ".type", type->text,
             "its column input is read here if it is called question; the chat template writes it here, too");
  if (type->text.find("argilla") != std::string::npos) {
    job.set("data.text.columns.chosen", "chosen_response");
    job.set("data.text.columns.rejected", "rejected_response");
  }
  if (form == "chatml" || form == "llama3") job.otherwise("data.text.chat_template", form, "");
}

/// Moves what a data set of training says besides its place.
void set_training_form(Moving& one, const Node& data, const std::string& place) {
  for (const char* key : {"chat_template", "chat_template_jinja"}) set_chat_template(one, key, one.text(key));
  set_form(one, data, place);
  set_columns(one, data);
  set_learned(one, data, place);
  set_chat_template(one, place + ".chat_template", text_in(data, "chat_template"));
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
  for (const Node& part : data.parts) {
    if (std::ranges::find(kRead, part.key) != kRead.end() || is_off(part)) continue;
    if (part.key == "message_property_mappings" || part.key == "roles" || part.key.starts_with("message_field_"))
      continue;  // role and content, from and value: all are read
    one.tell(place + "." + part.key, config::to_flow(part), "not used");
  }
}

}  // namespace

void move_axolotl_data(Moving& job, const std::string& dotted, const Node& value) {
  if (dotted == "test_datasets")
    return move_data_list(job, dotted, value, "val", [](Moving&, const Node&, const std::string&) {});
  const bool is_pretraining = dotted == "pretraining_dataset";
  move_data_list(job, dotted, value, "train",
                 [is_pretraining](Moving& one, const Node& data, const std::string& place) {
                   set_training_form(one, data, place);
                   if (is_pretraining || text_in(data, "type") == "completion") one.set("data.text.loss_on", "all");
                 });
}

}  // namespace gputrain::app::foreign
