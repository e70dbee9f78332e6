// Tracks what the disk does not hold yet, and simulates its loss.
//
// A killed process loses nothing that it wrote, because the kernel has it. A power cut is therefore simulated on the
// files before the kill, as harsh as POSIX allows: data is safe after an fsync of its file, a name after an fsync of
// its folder, and nothing else is ordered. Of a job of several processes, one loses what it has not synced: any part of
// what all have not synced may get lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
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
  /// `spare` is a folder on the same file system; it keeps a second link to files that lose their name. `log`: the
  /// descriptor of FAULTS_LOG, or -1.
  Unsynced(std::string spare, int log) : spare_(std::move(spare)), log_(log) {}

  enum class Kind { create, make_folder, rename, exchange, unlink, remove_folder };
  struct Name {
    Kind kind;
    std::string path;         // that was created, removed or renamed to
    std::string from = {};    // source of a rename
    std::string backup = {};  // link to what the name referred to before
    off_t logged = 0;         // size of the log when it had changed
  };

  /// Bytes [begin, end) of an open file are new; before, its size was `size_before`.
  void wrote(int fd, off_t begin, off_t end, off_t size_before);

  /// Call after the change. `backup` comes from keep(), called before the change.
  void changed(Name name);
  std::string keep(const std::string& path);

  void synced_file(int fd);
  /// Of names that changed before the log had this size.
  void synced_folder(const std::string& folder, off_t until = std::numeric_limits<off_t>::max());

  /// Other processes sync folders too: the log says which, and when. `rank`: this process in the log.
  void learn_of_syncs_by_others(const std::string& log, const std::string& rank);

  /// Removes unsynced data and names from the files, all or a part, chosen by the seed.
  void lose(uint64_t seed);

 private:
  struct Data {
    int fd = -1;  // our own duplicate: the program may close its descriptor
    off_t durable_size = 0;
    std::vector<std::pair<off_t, off_t>> ranges;
  };

  Data& data_of(int fd, off_t size_before);
  void lose_data(std::mt19937_64& random);
  size_t make_durable(size_t index);
  size_t move_earlier(size_t index, const Name& rename);
  static void undo(const Name& name);

  std::string spare_;
  int log_;
  int64_t backups_ = 0;
  std::map<std::pair<dev_t, ino_t>, Data> files_;
  std::vector<Name> names_;  // in order of the changes
};

}  // namespace torture
