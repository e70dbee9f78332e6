// Tells the other ranks that this one lives and what it is at, and notices when another does not: on a thread and over
// connections of its own, so that it goes on while the ranks wait in a collective, compute, or read.
//
// All ranks tell rank 0, and rank 0 tells them: why they all have to end, if so. A rank that is slow but lives is left
// in peace; one that is stopped, or whose host is gone, has `silence` to be heard of again.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/poll.hpp"
#include "journal.hpp"
#include "roster.hpp"
#include "watch_door.hpp"

namespace gputrain::comm {

class Watch {
 public:
  struct Options {
    int rank = 0;
    std::vector<std::string> hosts;  // of each rank
    std::string secret;              // by which ranks know each other
    std::chrono::milliseconds silence{}, grace{};
  };
  /// `socket`: listening, on rank 0; connected to that on the others.
  Watch(Options options, int socket);
  /// Says goodbye: as after an error where one is on its way up.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  int rank() const noexcept { return options_.rank; }
  Journal& journal() noexcept { return journal_; }
  /// Journal::enter(), and that the others hear of it soon.
  void enter(const char* place, int64_t step);

  /// Why this rank has to end, if it has to. Once there is a verdict, the process has `grace` to end in good order.
  std::optional<Verdict> verdict() const;
  /// Tells that a collective broke off, and waits a moment for what it means. Empty: nobody is there who would know.
  std::optional<Verdict> judge(Failure failure);
  /// The same without waiting.
  void report(Failure failure);
  /// This rank ends by itself; `words`: why, where that is an error.
  void leave(const std::string& words, bool failed);
  /// After that, of an error: whether it is for this rank to tell the user. Of ranks that leave with the same words one
  /// is: rank 0, where it is among the first to leave. Waits a moment to be told.
  bool is_teller();
  /// After leave(), where nothing is left to do but to give everything back: the process has `grace` for that, then it
  /// is ended by this error, which is told unless another rank does.
  void end_by(const Error& error, bool is_told);
  /// What to do before a process that does not end in good order is ended; null: nothing.
  void set_last_words(std::function<void(const Error&)> last_words);

 private:
  void run();
  void wait();
  void forgive();
  void greet();
  void read(int rank, WatchLink& link);
  void take(int rank, std::string_view line);
  void take_message(int rank, const nlohmann::json& message);
  void take_reports();
  void note_failure(Failure failure);
  void beat(bool with_calls);
  void look_for_silence();
  void gather();
  bool has_gathered();
  void decide();
  void announce(const Verdict& verdict);
  void end_if_overdue();
  struct End {  // of a process that does not end in good order
    Error error;
    bool is_told = false;  // elsewhere
    Clock::time_point at;
  };
  std::optional<End> end_due();
  [[noreturn]] void end(const End& how, const std::function<void(const Error&)>& last_words);
  void say_goodbye();
  void name_tellers();
  void take_teller(int rank);
  void tell_all(const std::string& message);
  bool is_arbiter() const noexcept { return options_.rank == 0; }

  const Options options_;
  Journal journal_;
  Descriptor bell_;             // wakes the thread
  Clock::time_point hastened_;  // the last beat out of turn

  // Of the thread alone.
  WatchDoor door_;
  std::map<int, std::unique_ptr<WatchLink>> links_;
  Roster roster_;
  std::optional<Failure> failure_;
  struct Gathering {  // of what every rank is at and has called, before a verdict
    Clock::time_point until;
    std::set<int> missing;
  };
  std::optional<Gathering> gathering_;
  std::vector<std::pair<int, std::string>> leavers_;  // by an error, and their words: who tells is not decided yet
  Clock::time_point tellers_due_;
  std::map<std::string, int> tellers_;  // by their words
  Clock::time_point next_beat_ = Clock::now(), awake_ = Clock::now();
  bool has_news_ = false;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::atomic<bool> has_verdict_ = false, hastens_ = false;
  std::optional<Verdict> verdict_;
  Clock::time_point end_at_;
  std::vector<Failure> reports_;
  struct Goodbye {
    std::string words;
    bool failed = false;
  };
  std::optional<Goodbye> goodbye_;
  std::optional<int> teller_;          // of the goodbye's words
  std::optional<Goodbye> of_arbiter_;  // heard from rank 0
  std::optional<End> own_end_;
  bool goodbye_said_ = false, is_spared_ = false, is_deaf_ = false, stops_ = false;
  std::function<void(const Error&)> last_words_;

  std::thread thread_;
};

}  // namespace gputrain::comm
