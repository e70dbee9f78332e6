// Preloaded into a program: a rank sends itself a signal at a moment that a signal from outside may miss. STRIKE_AT:
// "forward" is before a layer is computed; "collective" is after half of a piece of a gradient has been written to
// another rank. STRIKE_RANK and STRIKE_SIGNAL name the rank and the signal, STRIKE_COUNT the number of the moment.
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

/// Whether the rank must strike now.
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

/// Returned like at::Tensor: in memory that the caller provides.
struct Tensor {
  Tensor(const Tensor&) = delete;
  ~Tensor();
  void* held;
};

}  // namespace

/// Gloo writes with this function.
extern "C" __attribute__((visibility("default"))) ssize_t writev(int descriptor, const iovec* pieces, int count) {
  static const auto next = reinterpret_cast<ssize_t (*)(int, const iovec*, int)>(::dlsym(RTLD_NEXT, "writev"));
  constexpr size_t kLeast = 4096;  // smaller writes are not gradients
  if (bytes_of(pieces, count) >= kLeast && is_socket(descriptor) && is_time_for("collective")) {
    iovec half = pieces[count - 1];
    half.iov_len /= 2;
    if (count > 1) next(descriptor, pieces, count - 1);
    next(descriptor, &half, 1);
    strike();
  }
  return next(descriptor, pieces, count);
}

/// at::_ops::linear::call: layers call it, but their backward does not.
extern "C" __attribute__((visibility("default"))) Tensor _ZN2at4_ops6linear4callERKNS_6TensorES4_RKSt8optionalIS2_E(
    const void* input, const void* weight, const void* bias) {
  using Linear = Tensor (*)(const void*, const void*, const void*);
  static const auto next =
      reinterpret_cast<Linear>(::dlsym(::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD),
                                       "_ZN2at4_ops6linear4callERKNS_6TensorES4_RKSt8optionalIS2_E"));
  if (is_time_for("forward")) strike();
  return next(input, weight, bias);
}
