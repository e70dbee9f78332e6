// CoNLL's files: a word and its tag per line, an empty line after each sentence.
#include "../samples/samples_of_records.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/datasets/token_windows.hpp"

namespace gputrain::records {
namespace {

struct ConllSpec {
  static void describe(config::Description<ConllSpec>& d) {
    d.summary(
        "a word per line, with its tag in the last column, separated by spaces or tabs; an empty line ends a sentence");
  }
};

struct Conll {
  static std::unique_ptr<data::Dataset> make(const ConllSpec&, const data::DatasetRequest& request) {
    if (request.model.reads_tokens() && request.model.target != Target::tags)
      throw Error(ExitCode::usage, {.what = "CoNLL's files have words with tags, and this model learns no tags",
                                    .where = "data.train.format",
                                    .hint = "model: {type: bert, config: {head: tagger}}"});
    return samples_of_records(request, format_named("conll"));
  }
};

const config::Registered<Conll, ConllSpec> registered_conll{data::catalog(), "conll", "words with tags, one per line"};

}  // namespace
}  // namespace gputrain::records
