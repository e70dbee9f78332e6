// Reports of a run in progress: one record per log line, evaluation and event.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/monitor/columns.hpp"

namespace gputrain::monitor {

using Metrics = std::map<std::string, double>;  // "train/loss", "val/top1" (percent), ...

/// What the model writes at a prompt.
struct WrittenText {
  std::string name = {};    // of the prompt, the same at every step: "sample", "sample/2"
  std::string prompt = {};  // as people read it
  std::string text = {};    // what the model writes
  bool is_answer = false;   // to a conversation; else it goes on where the prompt ends

  /// Returns both as one text.
  std::string whole() const { return prompt + (is_answer ? "\n\nassistant: " : "") + text; }
};

/// What an evaluation shows: a PNG file.
struct Picture {
  std::string name = {};                        // the same at every step: "val/worst"
  std::shared_ptr<const std::string> png = {};  // the sinks share it
  int64_t width = 0, height = 0;
  std::string caption = {};  // what is seen, a line for each sample

  /// Returns the name without what stands before its last slash: "worst".
  std::string short_name() const { return name.substr(name.rfind('/') + 1); }
};

struct Record {
  int64_t step = 0;
  double epoch = 0;
  std::string kind;  // train | eval | event | sample | picture
  Metrics metrics = {};
  std::string label = {};            // first word of its console line: "step", "eval"; empty: not for the console
  std::string text = {};             // rest of the line; in an event, what happened
  std::vector<Column> columns = {};  // the same in columns, of which a narrow terminal shows some; empty: it has none
  // A record has either the fields above, or texts ("sample"), or pictures ("picture"), which go to sinks that show
  // them.
  std::vector<WrittenText> texts = {};
  std::vector<Picture> pictures = {};
};

}  // namespace gputrain::monitor
