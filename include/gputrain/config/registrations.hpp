// The entries that a library registers in the catalogs while it is loaded.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gputrain::config {

/// While the object lives, what this process registers, in any catalog, is of the library of this name; mistakes are
/// noted here instead of for refuse_wrong_registrations(). One object at a time.
class RegistrationsOf {
 public:
  explicit RegistrationsOf(std::string library);
  RegistrationsOf(const RegistrationsOf&) = delete;
  RegistrationsOf& operator=(const RegistrationsOf&) = delete;
  ~RegistrationsOf();

  const std::string& library() const noexcept { return library_; }
  const std::vector<std::string>& entries() const noexcept { return entries_; }  // "model 'mlp'"
  const std::string& mistakes() const noexcept { return mistakes_; }             // empty: none

  /// Returns the object that lives; null: none.
  static RegistrationsOf* now() noexcept;
  void add(std::string entry) { entries_.push_back(std::move(entry)); }
  void note(const std::string& mistake);

 private:
  std::string library_, mistakes_;
  std::vector<std::string> entries_;
};

}  // namespace gputrain::config
