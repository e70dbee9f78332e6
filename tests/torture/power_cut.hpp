// What the disk under a program does not hold yet, and losing it.
//
// A killed process loses nothing that it wrote, because the kernel still has it. So a power cut is played out on the
// files, before the kill. It is as unkind as POSIX allows: data is safe after an fsync of its file, a name after an
// fsync of its folder, and nothing orders the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace torture {

bool is_below(const std::string& path, const std::string& folder);

class Unsynced {
 public:
  /// `spare` is a folder on the same file system, where a second name is kept of what loses its own.
  explicit Unsynced(std::string spare) : spare_(std::move(spare)) {}

  enum class Kind { create, make_folder, rename, exchange, unlink, remove_folder };
  struct Name {
    Kind kind;
    std::string path;         // that appeared, went, or was renamed to
    std::string from = {};    // of a rename
    std::string backup = {};  // what the name stood for before
  };

  /// Bytes [begin, end) of an open file are new; before, it had `size_before`.
  void wrote(int fd, off_t begin, off_t end, off_t size_before);

  /// To be called after the change. `backup` comes from keep(), called before it.
  void changed(Name name) { names_.push_back(std::move(name)); }
  std::string keep(const std::string& path);

  void synced_file(int fd);
  void synced_folder(const std::string& folder);

  /// Takes from the files what is not synced, or some of it: the seed decides.
  void lose(uint64_t seed);

 private:
  struct Data {
    int fd = -1;  // ours: the program may have closed its own
    off_t durable_size = 0;
    std::vector<std::pair<off_t, off_t>> ranges;
  };

  Data& data_of(int fd, off_t size_before);
  void lose_data(std::mt19937_64& random);
  size_t make_durable(size_t index);
  size_t move_earlier(size_t index, const Name& rename);
  static void undo(const Name& name);

  std::string spare_;
  int64_t backups_ = 0;
  std::map<std::pair<dev_t, ino_t>, Data> files_;
  std::vector<Name> names_;  // in the order in which they changed
};

}  // namespace torture
