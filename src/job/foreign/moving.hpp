// Moves the keys of another tool's job into one of gputrain: one row of a table for each key.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gputrain/config/node.hpp"
#include "gputrain/job/foreign.hpp"

namespace gputrain::app::foreign {

/// A job of another tool while it becomes one of gputrain.
class Moving {
 public:
  /// `theirs`: a map; must outlive this.
  explicit Moving(const config::Node& theirs) : theirs_(theirs) {}

  /// Returns the value of a key ("fsdp_config.fsdp_offload_params"), or of the name that it has in other versions of
  /// transformers; null: it is absent, null or an empty text.
  const config::Node* given(std::string_view dotted) const;
  bool has(std::string_view dotted) const { return given(dotted) != nullptr; }
  /// Returns whether their file has a key under this very name.
  bool names(std::string_view top) const { return theirs_.find(top) != nullptr; }
  /// Returns a scalar as text; empty: there is none.
  std::string text(std::string_view dotted) const;
  double number(std::string_view dotted, double otherwise) const;
  bool is_on(std::string_view dotted) const;

  /// Sets a key of the job to YAML on one line. `note` becomes a comment behind it.
  void set(const std::string& ours, const std::string& value, const std::string& note = {});
  /// Sets a key of the job to a text, which is quoted where needed.
  void set_text(const std::string& ours, const std::string& value, const std::string& note = {});
  /// Sets a key that nothing has set: what the other tool does where its job says nothing.
  void otherwise(const std::string& ours, const std::string& value, const std::string& note);
  void remove(const std::string& ours) { lines_.erase(ours); }
  bool sets(const std::string& ours) const { return lines_.contains(ours); }
  std::string value_of(const std::string& ours) const;

  /// Says why a key of theirs has no line, in a comment at the end of the job and on the terminal.
  void tell(std::string_view dotted, const std::string& why);
  /// Says the same of a part of a key's value: "datasets[1]", with what stands there.
  void tell(const std::string& part, const std::string& value, const std::string& why);
  /// Remembers which lines the key `dotted` sets, until the next call; empty: none does.
  void begin(std::string_view dotted) { current_ = dotted.substr(0, dotted.find('.')); }
  /// Returns whether a line stands for this key of theirs at the top.
  bool has_line(const std::string& top) const;
  bool tells(const std::string& top) const;

  /// Says something about the job that no key of theirs stands for, in a comment alone; twice the same is said once.
  void remark(const std::string& what);

  /// Returns a job of the same file in which nothing is set yet.
  Moving apart() const { return Moving(theirs_); }
  /// Sets, tells and remarks what `part` does.
  void add(const Moving& part);
  /// Tells and remarks what `part` does.
  void add_told(const Moving& part);

  /// Returns the result. `name`: of the file, for the first lines; `unchanging`: keys of theirs that change nothing.
  MovedJob finish(const std::string& tool, const std::string& name, const std::vector<std::string>& unknown,
                  const std::vector<std::string>& unchanging) const;

  const std::vector<MovedJob::Told>& told() const noexcept { return told_; }
  /// Returns the keys that are set, with their values, in the order in which they were set.
  std::vector<std::pair<std::string, std::string>> settings() const;

  struct Line {
    std::string value, note;
    friend bool operator==(const Line&, const Line&) = default;
  };
  const std::map<std::string, Line>& lines() const noexcept { return lines_; }

 private:
  config::Node tree() const;

  const config::Node& theirs_;
  std::map<std::string, Line> lines_;                      // by dotted keys of the job
  std::string current_;                                    // key of theirs that is moved now
  std::set<std::pair<std::string, std::string>> setters_;  // keys of theirs and the lines that they have set
  std::vector<std::string> order_;                         // of their first settings
  std::vector<MovedJob::Told> told_;
  std::set<std::string> told_keys_;
  std::vector<std::string> remarks_;
};

/// What becomes of a key of theirs.
struct Row {
  using Move = std::function<void(Moving& job, const std::string& dotted, const config::Node& value)>;
  std::vector<std::string> names;  // dotted; with * at the end: all that begin so
  Move move;
  std::string meaning = {};  // of a key that is read later: what it is here, and by which formula
};
using Table = std::vector<Row>;

/// Words of theirs and what they are here.
using Words = std::vector<std::pair<std::string_view, std::string_view>>;

/// Returns a row for keys whose values are taken as they are.
Row to(std::vector<std::string> names, const std::string& ours);
/// The same for an option of the task `task`.
Row to_option(std::vector<std::string> names, const std::string& task, const std::string& ours);
/// The same for `true`, which becomes `value`; `false` is what happens without a line.
Row flag(std::vector<std::string> names, const std::string& ours, const std::string& value);
/// The same for values that have other words here. Others are told.
Row words(std::vector<std::string> names, const std::string& ours, const Words& known, const std::string& otherwise);
/// Returns a row for keys that have no counterpart, or need none. A value that switches them off needs no word.
Row told(std::vector<std::string> names, const std::string& why);
/// Returns a row for keys that the end of the tool reads with others.
Row read_later(std::vector<std::string> names, const std::string& meaning = {});
/// Returns a row for what none of the above does.
Row by(std::vector<std::string> names, Row::Move move);

/// Returns whether a value switches something off: null, false, "no", "none", 0 or an empty list.
bool is_off(const config::Node& value);

/// Moves each key by the first row that has it; returns those that no row has. Keys within a map have rows of their
/// own, if the map has none.
std::vector<std::string> move_all(Moving& job, const config::Node& theirs, const std::vector<const Table*>& tables);

/// A tool whose jobs are known.
struct Tool {
  std::string name;                  // "trl-dpo"
  std::string title;                 // "TRL"
  std::vector<const Table*> tables;  // earlier ones win
  void (*finish)(Moving& job);       // what several keys say together, and what the tool does unless told
};
const std::vector<Tool>& tools();

/// A job of another tool, moved.
struct Moved {
  Moving job;
  std::vector<std::string> unknown, unchanging;
};
/// Moves a whole job. `theirs` must outlive the result. Throws Error(usage) for what gputrain does not train.
Moved moved_by(const Tool& tool, const config::Node& theirs);
/// Returns the tool whose file this is, by its keys and, in a script, by the names of programs; null: none.
const Tool* tool_of(const config::Node& theirs);

/// Rows of transformers' TrainingArguments, which others have, too.
const Table& trainer_rows();
/// Finishes what those rows have left to it.
void finish_trainer(Moving& job);
/// Returns whether a job of the Trainer asks for evaluations.
bool evaluates(const Moving& job);
/// Returns the value here for a value of the Trainer's, of one of our keys: "adamw" for "adamw_torch", of
/// optimizer.type. Empty: there is none.
std::string our_word(const std::string& ours, const std::string& theirs);
/// Rows of transformers' example scripts: run_glue.py, run_clm.py and so on.
const Table& script_rows();
/// Finishes the job of such a script, or of TrainingArguments alone.
void finish_transformers(Moving& job);
const Table& axolotl_rows();
void finish_axolotl(Moving& job);
/// Moves the list under `datasets`, or another key that has one.
void move_axolotl_data(Moving& job, const std::string& dotted, const config::Node& value);
const Table& llama_factory_rows();
void finish_llama_factory(Moving& job);
const Table& trl_rows();
const Table& timm_rows();
void finish_timm(Moving& job);
void finish_trl_sft(Moving& job);
void finish_trl_dpo(Moving& job);
void finish_trl_kto(Moving& job);
void finish_trl_orpo(Moving& job);
void finish_trl_reward(Moving& job);

/// Rows of keys that no known tool's jobs have as a whole; the second ones at the top alone.
const Table& other_rows();
const Table& other_top_rows();

/// Sets the base, its tokenizer and what is trained of it, for a language model of the Hub.
void set_language_model(Moving& job, const std::string& name);
/// Sets the head of a reward model, which an adapter trains whole.
void set_reward_head(Moving& job);
/// Sets data.train (or `role`: "val") to a data set of the Hub or to a file. `split`: "train"; `configuration`: "en".
void set_data(Moving& job, const std::string& role, const std::string& name, const std::string& split,
              const std::string& configuration, const std::string& format);
/// A data set of theirs, and the job that it alone would make.
struct DataSet {
  std::string place;   // "datasets[1]"
  std::string theirs;  // what stands there, on one line
  Moving moved;
};
/// Sets data.train (or `role`) to all data sets that can be read as one, and tells which are left out.
void set_data_sets(Moving& job, const std::string& role, const std::vector<DataSet>& sets);
/// Does so for a list of maps, each with path, name, split and data_files. `move_rest` moves what else a map has.
void move_data_list(
    Moving& job, const std::string& dotted, const config::Node& value, const std::string& role,
    const std::function<void(Moving& one, const config::Node& data, const std::string& place)>& move_rest);
/// Returns the scalar under a key of a map; empty: there is none.
std::string text_in(const config::Node& map, std::string_view key);
/// Moves the ratio of the rates of B and A.
void move_lora_plus(Moving& job, const std::string& dotted, const config::Node& value);
/// Moves the share of the data that is evaluated on.
void move_held_out(Moving& job, const std::string& dotted, const config::Node& value);
/// Sets data.text.chat_template to a template that this program has; else says what is used instead.
void set_chat_template(Moving& job, const std::string& key, const std::string& name);

/// Text that stands for a model's name until the user writes one.
inline constexpr const char* kModelToFillIn = "<model>";

/// Reads a command line from a shell script: options become keys, and words without one are under "positional".
config::Node read_command_line(const std::string& script);

}  // namespace gputrain::app::foreign
