// The part of NVIDIA's driver that counts GPUs. Fails if FAKE_DRIVER_GPUS is not set.
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int cuInit(unsigned) {
  constexpr int kNoDevice = 100;
  return std::getenv("FAKE_DRIVER_GPUS") == nullptr ? kNoDevice : 0;
}

extern "C" __attribute__((visibility("default"))) int cuDeviceGetCount(int* count) {
  *count = std::atoi(std::getenv("FAKE_DRIVER_GPUS"));
  return 0;
}
