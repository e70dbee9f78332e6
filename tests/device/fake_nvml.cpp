// NVIDIA's management library with two GPUs that say what a file says: one `key value` per line. The environment
// variable FAKE_NVML_STATE names the file, which may change at any time. Keys act on the second GPU.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#define FAKE extern "C" __attribute__((visibility("default"))) int

namespace {

constexpr int kNotSupported = 3, kDriverNotLoaded = 9, kTimeout = 10, kGpuIsLost = 15;

char first_gpu, second_gpu;

std::string told(const std::string& key) {
  const char* path = std::getenv("FAKE_NVML_STATE");
  std::ifstream file(path == nullptr ? "" : path);
  for (std::string name, value; file >> name >> value;) {
    if (name == key) return value;
  }
  return {};
}

unsigned long long number(void* gpu, const char* key, unsigned long long otherwise) {
  const std::string value = gpu == &second_gpu ? told(key) : "";
  return value.empty() ? otherwise : std::strtoull(value.c_str(), nullptr, 0);
}

int state_of(void* gpu) { return number(gpu, "lost", 0) == 1 ? kGpuIsLost : 0; }

int copy(void* gpu, const std::string& text, char* to, unsigned size) {
  std::snprintf(to, size, "%s", text.c_str());
  return state_of(gpu);
}

}  // namespace

FAKE nvmlInit_v2() { return told("driver") == "none" ? kDriverNotLoaded : 0; }
FAKE nvmlShutdown() { return 0; }
FAKE nvmlSystemGetDriverVersion(char* text, unsigned size) {
  const std::string version = told("driver");
  return copy(nullptr, version.empty() ? "580.65.06" : version, text, size);
}
FAKE nvmlSystemGetCudaDriverVersion_v2(int* version) {
  const std::string value = told("cuda");
  *version = value.empty() ? 13000 : std::atoi(value.c_str());
  return 0;
}
FAKE nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
FAKE nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) {
  *gpu = index == 0 ? &first_gpu : &second_gpu;
  return index == 1 && told("lost_before") == "1" ? kGpuIsLost : 0;
}
FAKE nvmlDeviceGetName(void* gpu, char* text, unsigned size) { return copy(gpu, "NVIDIA H100 80GB HBM3", text, size); }
FAKE nvmlDeviceGetUUID(void* gpu, char* text, unsigned size) {
  return copy(gpu, gpu == &first_gpu ? "GPU-11111111" : "GPU-22222222", text, size);
}
FAKE nvmlDeviceGetPciInfo_v3(void* gpu, void* info) {
  constexpr size_t kBusId = 16 + 5 * sizeof(unsigned);
  return copy(gpu, gpu == &first_gpu ? "00000000:3A:00.0" : "00000000:3B:00.0", static_cast<char*>(info) + kBusId, 32);
}
FAKE nvmlDeviceGetCudaComputeCapability(void* gpu, int* major, int* minor) {
  const auto capability = number(gpu, "compute_capability", 90);
  *major = static_cast<int>(capability / 10);
  *minor = static_cast<int>(capability % 10);
  return state_of(gpu);
}
FAKE nvmlDeviceGetMigMode(void* gpu, unsigned* now, unsigned* later) {
  *now = *later = static_cast<unsigned>(number(gpu, "mig", 0));
  return state_of(gpu);
}
FAKE nvmlDeviceGetEccMode(void* gpu, int* now, int* later) {
  *now = *later = static_cast<int>(number(gpu, "ecc", 1));
  return state_of(gpu);
}
FAKE nvmlDeviceGetUtilizationRates(void* gpu, unsigned* rates) {
  rates[0] = static_cast<unsigned>(number(gpu, "utilization", 50));
  rates[1] = 0;
  return state_of(gpu);
}
FAKE nvmlDeviceGetMemoryInfo(void* gpu, unsigned long long* memory) {
  memory[0] = 80ULL << 30;
  memory[2] = number(gpu, "memory_used", 1ULL << 30);
  memory[1] = memory[0] - memory[2];
  return state_of(gpu);
}
FAKE nvmlDeviceGetTemperature(void* gpu, int, unsigned* celsius) {
  const std::string pipe = gpu == &second_gpu ? told("hang") : "";
  if (!pipe.empty()) static_cast<void>(std::ifstream(pipe).get());  // until somebody opens the pipe and closes it
  *celsius = static_cast<unsigned>(number(gpu, "temperature", 40));
  return state_of(gpu);
}
FAKE nvmlDeviceGetPowerUsage(void* gpu, unsigned* milliwatts) {
  *milliwatts = 350'500;
  return gpu == &second_gpu && told("power") == "unsupported" ? kNotSupported : state_of(gpu);
}
FAKE nvmlDeviceGetEnforcedPowerLimit(void* gpu, unsigned* milliwatts) {
  *milliwatts = static_cast<unsigned>(number(gpu, "power_limit", 700'000));
  return state_of(gpu);
}
FAKE nvmlDeviceGetPowerManagementDefaultLimit(void* gpu, unsigned* milliwatts) {
  *milliwatts = 700'000;
  return state_of(gpu);
}
FAKE nvmlDeviceGetClockInfo(void* gpu, int type, unsigned* megahertz) {
  *megahertz = type == 1 ? 1980 : 2619;
  return state_of(gpu);
}
FAKE nvmlDeviceGetMaxClockInfo(void* gpu, int, unsigned* megahertz) {
  *megahertz = 1980;
  return state_of(gpu);
}
FAKE nvmlDeviceGetTotalEccErrors(void* gpu, int type, int, unsigned long long* errors) {
  *errors = type == 1 ? number(gpu, "ecc_uncorrected", 0) : 1000;
  return state_of(gpu);
}

#ifndef FAKE_OLD_NVML  // an old driver has none of these
FAKE nvmlDeviceGetTotalEnergyConsumption(void* gpu, unsigned long long* millijoules) {
  *millijoules = 2'500;
  return state_of(gpu);
}
FAKE nvmlDeviceGetCurrentClocksEventReasons(void* gpu, unsigned long long* reasons) {
  *reasons = number(gpu, "throttle", 0);
  return state_of(gpu);
}
FAKE nvmlEventSetCreate(void** set) {
  static char events;
  *set = &events;
  return 0;
}
FAKE nvmlDeviceRegisterEvents(void*, unsigned long long, void*) { return 0; }
FAKE nvmlEventSetWait_v2(void*, void* event, unsigned) {
  static unsigned long long told_before = 0;
  const unsigned long long xid = number(&second_gpu, "xid", 0);
  if (xid == told_before) return kTimeout;
  told_before = xid;
  struct Event {
    void* gpu;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
  } told{&second_gpu, 8, xid, 0, 0};
  std::memcpy(event, &told, sizeof told);
  return 0;
}
FAKE nvmlEventSetFree(void*) { return 0; }
#endif
