// Stands in for a file system without locks.
#include <cerrno>

extern "C" int flock(int, int) {
  errno = ENOSYS;
  return -1;
}
