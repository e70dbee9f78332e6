// Loaded into a program: strikes a rank by a signal from within, where no signal from outside is sure to find it. By
// STRIKE_AT "forward", when a layer is about to be computed; "collective", when half of a piece of a gradient has been
// written to another rank. STRIKE_RANK and STRIKE_SIGNAL say whom and how, STRIKE_COUNT at which of such moments.
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace {

bool is_set_to(const char* name, const char* value) {
  const char* text = std::getenv(name);
  return text != nullptr && value != nullptr && std::strcmp(text, value) == 0;
}

/// Whether this is the moment.
bool is_time_for(const char* place) {
  static std::atomic<int> count = 0;
  static const bool is_victim = std::getenv("STRIKE_RANK") != nullptr && is_set_to("RANK", std::getenv("STRIKE_RANK"));
  return is_victim && is_set_to("STRIKE_AT", place) && ++count == std::atoi(std::getenv("STRIKE_COUNT"));
}

void strike() { std::raise(std::atoi(std::getenv("STRIKE_SIGNAL"))); }

size_t bytes_of(const iovec* pieces, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  return bytes;
}

bool is_socket(int descriptor) {
  struct stat about {};
  return ::fstat(descriptor, &about) == 0 && S_ISSOCK(about.st_mode);
}

/// As at::Tensor is returned: by a place that the caller gives.
struct Tensor {
  Tensor(const Tensor&) = delete;
  ~Tensor();
  void* held;
};

}  // namespace

/// How Gloo writes.
extern "C" __attribute__((visibility("default"))) ssize_t writev(int descriptor, const iovec* pieces, int count) {
  static const auto next = reinterpret_cast<ssize_t (*)(int, const iovec*, int)>(::dlsym(RTLD_NEXT, "writev"));
  constexpr size_t kLeast = 4096;  // less is no gradient
  if (bytes_of(pieces, count) >= kLeast && is_socket(descriptor) && is_time_for("collective")) {
    iovec half = pieces[count - 1];
    half.iov_len /= 2;
    if (count > 1) next(descriptor, pieces, count - 1);
    next(descriptor, &half, 1);
    strike();
  }
  return next(descriptor, pieces, count);
}

/// at::_ops::linear::call, which layers call and their gradients do not.
extern "C" __attribute__((visibility("default"))) Tensor _ZN2at4_ops6linear4callERKNS_6TensorES4_RKSt8optionalIS2_E(
    const void* input, const void* weight, const void* bias) {
  using Linear = Tensor (*)(const void*, const void*, const void*);
  static const auto next =
      reinterpret_cast<Linear>(::dlsym(::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD),
                                       "_ZN2at4_ops6linear4callERKNS_6TensorES4_RKSt8optionalIS2_E"));
  if (is_time_for("forward")) strike();
  return next(input, weight, bias);
}
