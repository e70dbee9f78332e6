// Finds the tokens with the highest sum of scores, by Viterbi's algorithm.
// Kudo, "Subword Regularization", 2018.
#pragma once

#include <vector>

#include "model.hpp"

namespace gputrain::tokenizers {

class Unigram final : public Model {
 public:
  struct Options {
    int32_t unknown = -1;  // -1: none
    bool falls_back_to_bytes = false;
    bool is_single_precision = false;  // SentencePiece's sums: rounded to float, and kept small
  };
  /// `scores` by token. `is_found`: which tokens stand for text; empty: all.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, const std::vector<bool>& is_found, Options options);

  bool encode(std::string_view word, Workspace& workspace) const override;

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Step {  // the best way to a position
    double score = 0;
    size_t begin = kNone;  // begin of its last token
    int32_t token = -1;
  };
  bool find_ways(std::string_view word, std::vector<Step>& ways) const;
  static void keep_small(std::vector<Step>& ways, size_t begin);
  bool append(std::string_view text, size_t begin, Workspace& workspace) const;

  std::vector<double> scores_;
  Options options_;
  double unknown_score_;
  PairTable children_;                // (node, byte) -> node
  std::vector<int32_t> node_tokens_;  // -1: no token ends at this node
};

}  // namespace gputrain::tokenizers
