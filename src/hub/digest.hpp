// SHA-256 of a stream of bytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace gputrain::hub {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::string_view bytes);
  /// Returns 64 hex digits of all bytes so far, and starts anew.
  std::string finish();

 private:
  void begin();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gputrain::hub
