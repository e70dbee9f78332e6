// Fakes libcuda.so.1, the driver's library: LibTorch asks it whether a GPU is in use.
#define FAKE_CUDA extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kDone = 0;
char context;  // shared by all GPUs

}  // namespace

FAKE_CUDA int cuInit(unsigned) { return kDone; }

FAKE_CUDA int cuDeviceGet(int* device, int number) {
  *device = number;
  return kDone;
}

FAKE_CUDA int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = 1;
  return kDone;
}

FAKE_CUDA int cuDevicePrimaryCtxRetain(void** retained, int) {
  *retained = &context;
  return kDone;
}

FAKE_CUDA int cuCtxGetCurrent(void** current) {
  *current = &context;
  return kDone;
}

FAKE_CUDA int cuCtxSetCurrent(void*) { return kDone; }

FAKE_CUDA int cuPointerGetAttribute(void* value, int, unsigned long long) {
  *static_cast<void**>(value) = &context;
  return kDone;
}

// Functions that loading the library requires, but that nothing calls here.
#define FAKE_CUDA_UNSUPPORTED(name) \
  FAKE_CUDA int name() { return 801; }
FAKE_CUDA_UNSUPPORTED(cuDeviceGetAttribute)
FAKE_CUDA_UNSUPPORTED(cuFuncGetAttribute)
FAKE_CUDA_UNSUPPORTED(cuFuncSetAttribute)
FAKE_CUDA_UNSUPPORTED(cuFuncSetCacheConfig)
FAKE_CUDA_UNSUPPORTED(cuGetErrorString)
FAKE_CUDA_UNSUPPORTED(cuLaunchCooperativeKernel)
FAKE_CUDA_UNSUPPORTED(cuLaunchKernel)
FAKE_CUDA_UNSUPPORTED(cuLinkAddData_v2)
FAKE_CUDA_UNSUPPORTED(cuLinkComplete)
FAKE_CUDA_UNSUPPORTED(cuLinkCreate_v2)
FAKE_CUDA_UNSUPPORTED(cuModuleGetFunction)
FAKE_CUDA_UNSUPPORTED(cuModuleLoad)
FAKE_CUDA_UNSUPPORTED(cuModuleLoadData)
FAKE_CUDA_UNSUPPORTED(cuModuleLoadDataEx)
FAKE_CUDA_UNSUPPORTED(cuModuleUnload)
FAKE_CUDA_UNSUPPORTED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
FAKE_CUDA_UNSUPPORTED(cuTensorMapEncodeTiled)
