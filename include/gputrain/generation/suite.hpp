// Evaluates a language model on a file of questions and texts, as the tasks of lm-evaluation-harness do.
//
// What lm-evaluation-harness 0.4 calls multiple_choice, loglikelihood_rolling and generate_until has the same numbers
// here: texts become tokens, are cut to what the model reads, and are scored as its HFLM does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gputrain/comm/group.hpp"
#include "gputrain/generation/generate.hpp"
#include "gputrain/generation/likelihood.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::generation {

/// Which of the choices is the likeliest after the context?
struct Choices {
  std::string context;
  std::vector<std::string> choices;
  int64_t answer = 0;           // number of the right one
  std::string delimiter = " ";  // between context and choice
};

/// How likely is the text?
struct WholeText {
  std::string text;
};

/// Is the greedy continuation of the prompt the answer?
struct Question {
  std::string prompt, answer;
  std::vector<std::string> stop{"\n\n"};  // the answer ends before the first of these
  std::optional<int64_t> max_new_tokens;  // none: 256, or half of what the model reads if that is less
};

struct SuiteItem {
  std::string place;  // "file:line"
  int64_t line = 0;
  std::string task;  // empty: none
  std::variant<Choices, WholeText, Question> asked;
};

/// Reads the items of a file of JSON lines. Throws Error(data) with file and line.
std::vector<SuiteItem> read_suite(const std::filesystem::path& file);

/// The language model of a suite, with the facts that a suite needs.
struct SuiteModel {
  models::Model& model;
  const tokenizers::Tokenizer& tokenizer;
  models::Model::TextLimits limits;
  std::optional<int64_t> first_token;    // comes before a text that has nothing before it; none: there is no such token
  bool adds_special_tokens = false;      // whether texts get special tokens, as the tokenizer's file says
  std::vector<int64_t> end_tokens = {};  // ascending
  MakeCapturedGraphs make_graphs = {};   // as in Options
};

/// The answer of the model to an item.
struct SuiteAnswer {
  std::vector<double> log_likelihoods;  // natural logarithms, one for each choice, or for the text
  std::string written;                  // text after a question's prompt
};

/// Answers all items. Every rank must call, with the same items; each does its share, and all get all answers. Throws
/// Error(data) with file and line for a text that has no tokens, or has some that the model does not know.
std::vector<SuiteAnswer> answer_suite(const std::vector<SuiteItem>& items, const SuiteModel& model,
                                      const BatchLimits& limits, comm::Group& ranks,
                                      const ProgressWatch& progress = {});

/// The measures of an item by name: "acc", "acc_norm", "acc_bytes", "exact_match", each 0 or 1; "loglikelihood",
/// "bytes", "words".
using ItemScore = std::map<std::string, double>;
ItemScore score_of(const SuiteItem& item, const SuiteAnswer& answer);

struct SuiteMetric {
  double value = 0;
  std::optional<double> stderr_of_mean;  // none: it is no mean, or that of one item
  int64_t count = 0;                     // number of items
};
/// "acc", "bits_per_byte", ... of items by their scores.
using SuiteMetrics = std::map<std::string, SuiteMetric>;
SuiteMetrics metrics_of(const std::vector<ItemScore>& scores);

}  // namespace gputrain::generation
