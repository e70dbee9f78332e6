// Fakes libcuda.so.1, the driver's library: LibTorch asks it whether a GPU is in use.
#define PRETEND extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kDone = 0;
char context;  // shared by all GPUs

}  // namespace

PRETEND int cuInit(unsigned) { return kDone; }

PRETEND int cuDeviceGet(int* device, int number) {
  *device = number;
  return kDone;
}

PRETEND int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = 1;
  return kDone;
}

PRETEND int cuDevicePrimaryCtxRetain(void** retained, int) {
  *retained = &context;
  return kDone;
}

PRETEND int cuCtxGetCurrent(void** current) {
  *current = &context;
  return kDone;
}

PRETEND int cuCtxSetCurrent(void*) { return kDone; }

PRETEND int cuPointerGetAttribute(void* value, int, unsigned long long) {
  *static_cast<void**>(value) = &context;
  return kDone;
}

// Functions that loading the library requires, but that nothing calls here.
#define PRETEND_UNSUPPORTED(name) \
  PRETEND int name() { return 801; }
PRETEND_UNSUPPORTED(cuDeviceGetAttribute)
PRETEND_UNSUPPORTED(cuFuncGetAttribute)
PRETEND_UNSUPPORTED(cuFuncSetAttribute)
PRETEND_UNSUPPORTED(cuFuncSetCacheConfig)
PRETEND_UNSUPPORTED(cuGetErrorString)
PRETEND_UNSUPPORTED(cuLaunchCooperativeKernel)
PRETEND_UNSUPPORTED(cuLaunchKernel)
PRETEND_UNSUPPORTED(cuLinkAddData_v2)
PRETEND_UNSUPPORTED(cuLinkComplete)
PRETEND_UNSUPPORTED(cuLinkCreate_v2)
PRETEND_UNSUPPORTED(cuModuleGetFunction)
PRETEND_UNSUPPORTED(cuModuleLoad)
PRETEND_UNSUPPORTED(cuModuleLoadData)
PRETEND_UNSUPPORTED(cuModuleLoadDataEx)
PRETEND_UNSUPPORTED(cuModuleUnload)
PRETEND_UNSUPPORTED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
PRETEND_UNSUPPORTED(cuTensorMapEncodeTiled)
