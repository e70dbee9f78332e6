#include "splitting.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "../subwords/workspace.hpp"
#include "unicode.hpp"

namespace gputrain::tokenizers {
namespace {

/// Joins and drops neighbours, as the behavior wants.
class Stretches {
 public:
  Stretches(Piece piece, DelimiterBehavior behavior, TakePiece take)
      : piece_(piece), behavior_(behavior), take_(take) {}

  /// Adds the next stretch; it begins where the last one ended, and may be empty.
  void add(size_t begin, size_t end, bool is_delimiter) {
    using enum DelimiterBehavior;
    const bool joins = behavior_ == contiguous             ? is_delimiter == was_delimiter_
                       : behavior_ == merged_with_previous ? is_delimiter && !was_delimiter_
                       : behavior_ == merged_with_next     ? was_delimiter_ && !is_delimiter
                                                           : false;
    if (!joins || !is_open_) {
      flush();
      begin_ = begin;
    }
    end_ = end;
    is_open_ = true;
    was_delimiter_ = is_delimiter;
    if (behavior_ == removed && is_delimiter) is_open_ = false;
  }

  void flush() {
    if (is_open_ && begin_ < end_) take_(piece_.part(begin_, end_));
    is_open_ = false;
  }

 private:
  Piece piece_;
  DelimiterBehavior behavior_;
  TakePiece take_;
  size_t begin_ = 0, end_ = 0;
  bool is_open_ = false;
  bool was_delimiter_ = false;
};

}  // namespace

std::optional<DelimiterBehavior> delimiter_behavior(std::string_view name) {
  using enum DelimiterBehavior;
  constexpr std::array<std::pair<std::string_view, DelimiterBehavior>, 5> kNames{
      {{"Isolated", isolated},
       {"Removed", removed},
       {"MergedWithPrevious", merged_with_previous},
       {"MergedWithNext", merged_with_next},
       {"Contiguous", contiguous}}};
  const auto found = std::ranges::find(kNames, name, [](const auto& entry) { return entry.first; });
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

PreTokenizer split(FindDelimiters find, DelimiterBehavior behavior, bool is_inverted) {
  return [find = std::move(find), behavior, is_inverted](Piece piece, Workspace& workspace, TakePiece take) {
    Stretches stretches(piece, behavior, take);
    size_t last = 0;
    find(piece.text, workspace, [&](size_t begin, size_t end) {
      if (last < begin) stretches.add(last, begin, is_inverted);
      stretches.add(begin, end, !is_inverted);
      last = end;
    });
    if (last < piece.text.size()) stretches.add(last, piece.text.size(), is_inverted);
    stretches.flush();
  };
}

FindDelimiters matches_of(std::shared_ptr<const Regex> regex) {
  return [regex = std::move(regex)](std::string_view text, Workspace& workspace, TakeDelimiter take) {
    regex->each_match(text, workspace.matches, take);
  };
}

FindDelimiters characters_that(bool (*is_kind)(int64_t) noexcept) {
  return [is_kind](std::string_view text, Workspace&, TakeDelimiter take) {
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      if (is_kind(code_point(text, at))) take(begin, at);
    }
  };
}

}  // namespace gputrain::tokenizers
