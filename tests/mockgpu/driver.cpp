// The CUDA driver, which loads what Triton has compiled, and NVML.
#include "mock.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

typedef unsigned long long u64;
extern "C" int cudaDeviceGetAttribute(int *, int, int);
extern "C" int cudaStreamIsCapturing(void *, int *);

API int cuInit(unsigned) {
  if (long error = mock::asked("MOCKGPU_CUINIT", 0)) return error;
  return mock::devices() ? 0 : 100;
}
API int cuDriverGetVersion(int *version) {
  *version = mock::asked("MOCKGPU_DRIVER", 13000);
  return 0;
}
API int cuGetErrorName(int error, const char **name) {
  *name = error == 100 ? "CUDA_ERROR_NO_DEVICE" : error == 999 ? "CUDA_ERROR_UNKNOWN" : "CUDA_ERROR";
  return 0;
}
API int cuGetErrorString(int error, const char **text) {
  *text = error == 100 ? "no CUDA-capable device is detected" : "unknown error";
  return 0;
}
API int cuDeviceGetCount(int *count) {
  *count = mock::devices();
  return 0;
}
API int cuDeviceGet(int *device, int number) {
  *device = number;
  return 0;
}
API int cuDeviceGetName(char *name, int size, int device) {
  snprintf(name, size, "Mock GPU %d", device);
  return 0;
}
API int cuDeviceGetAttribute(int *value, int attribute, int device) {
  return cudaDeviceGetAttribute(value, attribute, device);
}
API int cuCtxGetCurrent(void **context) {
  *context = (void *)1;
  return 0;
}
API int cuCtxSetCurrent(void *) { return 0; }
API int cuCtxGetLimit(size_t *limit, int) {
  *limit = 0;
  return 0;
}
API int cuCtxSetLimit(int, size_t) { return 0; }
API int cuCtxGetDevice(int *device) {
  *device = mock::current_device();
  return 0;
}
API int cuDevicePrimaryCtxRetain(void **context, int) { return cuCtxGetCurrent(context); }
API int cuDevicePrimaryCtxGetState(int, unsigned *flags, int *active) {
  *flags = 0, *active = 1;
  return 0;
}
API int cuStreamIsCapturing(void *stream, int *status) { return cudaStreamIsCapturing(stream, status); }
API int cuPointerGetAttribute(void *value, int, u64 pointer) {
  *(u64 *)value = pointer;
  return 0;
}
API int cuModuleLoadData(void **module, const void *) {
  *module = (void *)1;
  return 0;
}
API int cuModuleLoadDataEx(void **module, const void *, unsigned, void *, void **) {
  *module = (void *)1;
  return 0;
}
API int cuModuleLoad(void **module, const char *) {
  *module = (void *)1;
  return 0;
}
API int cuModuleUnload(void *) { return 0; }
API int cuModuleGetFunction(void **function, void *, const char *name) {
  *function = strdup(name);
  return 0;
}
API int cuFuncGetAttribute(int *value, int attribute, void *) {
  *value = attribute == 0 ? 1024 : attribute == 4 ? 32 : 0;
  return 0;
}
API int cuFuncSetAttribute(void *, int, int) { return 0; }
API int cuFuncSetCacheConfig(void *, int) { return 0; }
API int cuOccupancyMaxActiveClusters(int *count, void *, void *) {
  *count = 16;
  return 0;
}
API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, void *, int, size_t) {
  *count = 4;
  return 0;
}
API int cuLaunchKernel(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       void *stream, void **, void **) {
  return mock::queue(stream, mock::KERNEL, (const char *)function);
}
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  void *stream;
};
API int cuLaunchKernelEx(const LaunchConfig *config, void *function, void **, void **) {
  return mock::queue(config->stream, mock::KERNEL, (const char *)function);
}
API int cuGetProcAddress_v2(const char *name, void **found, int, u64, int *how) {
  static void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
  *found = dlsym(driver, name);
  if (!*found) *found = dlsym(driver, (std::string(name) + "_v2").c_str());
  if (how) *how = *found ? 0 : 1;
  return *found ? 0 : 500;
}
API int cuGetProcAddress(const char *name, void **found, int version, u64 flags) {
  return cuGetProcAddress_v2(name, found, version, flags, nullptr);
}

// torch looks all of these up before it uses any.
#define UNUSED(name) \
  API int name(...) { return 801; }
UNUSED(cuCtxFromGreenCtx)
UNUSED(cuCtxPopCurrent)
UNUSED(cuCtxPushCurrent)
UNUSED(cuDevResourceGenerateDesc)
UNUSED(cuDevSmResourceSplitByCount)
UNUSED(cuDeviceGetDevResource)
UNUSED(cuGreenCtxCreate)
UNUSED(cuGreenCtxDestroy)
UNUSED(cuGreenCtxStreamCreate)
UNUSED(cuLogsRegisterCallback)
UNUSED(cuLogsUnregisterCallback)
UNUSED(cuMemAddressFree)
UNUSED(cuMemAddressReserve)
UNUSED(cuMemCreate)
UNUSED(cuMemExportToShareableHandle)
UNUSED(cuMemGetAddressRange)
UNUSED(cuMemGetAllocationGranularity)
UNUSED(cuMemGetAllocationPropertiesFromHandle)
UNUSED(cuMemImportFromShareableHandle)
UNUSED(cuMemMap)
UNUSED(cuMemRelease)
UNUSED(cuMemRetainAllocationHandle)
UNUSED(cuMemSetAccess)
UNUSED(cuMemUnmap)
UNUSED(cuMemsetD32Async)
UNUSED(cuMulticastAddDevice)
UNUSED(cuMulticastBindMem)
UNUSED(cuMulticastCreate)
UNUSED(cuMulticastUnbind)
UNUSED(cuStreamWriteValue32)
UNUSED(nvmlDeviceGetGpuFabricInfoV)
UNUSED(nvmlDeviceGetNvLinkRemoteDeviceType)
UNUSED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
UNUSED(nvmlSystemGetCudaDriverVersion_v2)

// NVML. A device's handle is its CUDA number + 1; where MOCKGPU_NVML_REVERSED is set, NVML counts from the other end.
// A MIG device's is that + 100. MOCKGPU_NVML names the calls that fail: "nvmlInit=12,nvmlDeviceGetClockInfo=999,...".
static int failure(const char *call) {
  const char *list = mock::asked("MOCKGPU_NVML");
  const char *found = list ? strstr(list, (std::string(call) + "=").c_str()) : nullptr;
  return found ? atoi(found + strlen(call) + 1) : 0;
}
#define FAILS(call) \
  if (int error = failure(#call)) return error
static int device_of(void *handle) { return ((int)(uintptr_t)handle - 1) % 100; }
static bool is_mig(void *handle) { return (uintptr_t)handle > 100; }
static int there() { return mock::asked("MOCKGPU_DEVICES", 1); }
static const int NOT_SUPPORTED = 3, NOT_FOUND = 6;

API int nvmlInit_v2() {
  FAILS(nvmlInit);
  return 0;
}
API int nvmlInit() { return nvmlInit_v2(); }
API int nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }
API int nvmlShutdown() { return 0; }
API const char *nvmlErrorString(int error) { return error == 999 ? "Unknown Error" : "an error that the mock made"; }
API int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  FAILS(nvmlSystemGetDriverVersion);
  snprintf(text, size, "580.0");
  return 0;
}
API int nvmlSystemGetProcessName(unsigned number, char *text, unsigned size) {
  FAILS(nvmlSystemGetProcessName);
  snprintf(text, size, "/home/somebody/bin/other-%u", number);
  return 0;
}
API int nvmlDeviceGetCount_v2(unsigned *count) {
  FAILS(nvmlDeviceGetCount);
  *count = there();
  return 0;
}
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  FAILS(nvmlDeviceGetHandleByIndex);
  int number = mock::asked("MOCKGPU_NVML_REVERSED", 0) ? there() - 1 - (int)index : (int)index;
  *handle = (void *)(uintptr_t)(number + 1);
  return 0;
}
API int nvmlDeviceGetName(void *handle, char *name, unsigned size) {  // by which Ray calls a node's GPUs
  return cuDeviceGetName(name, (int)size, device_of(handle));
}
static std::string uuid_of(int device) {
  unsigned char bytes[16];
  std::string text;
  mock::uuid(device, bytes);
  for (int i = 0; i < 16; i++) {
    char two[4];
    snprintf(two, sizeof two, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", bytes[i]);
    text += two;
  }
  return text;
}
API int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
  FAILS(nvmlDeviceGetUUID);
  snprintf(text, size, "%s-%s", is_mig(handle) ? "MIG" : "GPU", uuid_of(device_of(handle)).c_str());
  return 0;
}
API int nvmlDeviceGetHandleByUUID(const char *text, void **handle) {
  FAILS(nvmlDeviceGetHandleByUUID);
  bool mig = mock::asked("MOCKGPU_MIG", 0);
  for (int device = 0; device < there(); device++)
    if ((mig ? "MIG-" : "GPU-") + uuid_of(device) == text) {
      *handle = (void *)(uintptr_t)(device + 1 + (mig ? 100 : 0));
      return 0;
    }
  return NOT_FOUND;
}
API int nvmlDeviceGetHandleByPciBusId_v2(const char *text, void **handle) {
  unsigned bus = 1;
  sscanf(text, "%*x:%x", &bus);
  *handle = (void *)(uintptr_t)bus;
  return 0;
}
API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *mig, void **handle) {
  *handle = (void *)(uintptr_t)(device_of(mig) + 1);
  return 0;
}
API int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is) {
  *is = is_mig(handle);
  return 0;
}
API int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending) {
  FAILS(nvmlDeviceGetMigMode);
  *now = *pending = mock::asked("MOCKGPU_MIG", 0);
  return 0;
}
API int nvmlDeviceGetClockInfo(void *handle, int, unsigned *megahertz) {
  FAILS(nvmlDeviceGetClockInfo);
  if (is_mig(handle)) return NOT_SUPPORTED;
  *megahertz = (mock::busy(device_of(handle)) ? 1900 : 300) + device_of(handle);
  return 0;
}
API int nvmlDeviceGetMaxClockInfo(void *handle, int, unsigned *megahertz) {
  FAILS(nvmlDeviceGetMaxClockInfo);
  *megahertz = 1980;
  return 0;
}
API int nvmlDeviceGetCurrentClocksEventReasons(void *handle, u64 *reasons) {
  FAILS(nvmlDeviceGetCurrentClocksEventReasons);
  *reasons = mock::busy(device_of(handle)) ? 4 : 1;  // the power cap while it works, idle else
  return 0;
}
API int nvmlDeviceGetTotalEnergyConsumption(void *, u64 *millijoules) {
  FAILS(nvmlDeviceGetTotalEnergyConsumption);
  *millijoules = mock::now() / 100000000 * 20000;  // 200 W, told every 100 ms
  return 0;
}
API int nvmlDeviceGetEnforcedPowerLimit(void *, unsigned *milliwatts) {
  FAILS(nvmlDeviceGetEnforcedPowerLimit);
  *milliwatts = 700000;
  return 0;
}
API int nvmlDeviceGetPersistenceMode(void *, unsigned *on) {
  FAILS(nvmlDeviceGetPersistenceMode);
  *on = 0;
  return 0;
}
struct Process {
  unsigned number;
  u64 bytes;
  unsigned gpu, compute;
};
API int nvmlDeviceGetComputeRunningProcesses_v3(void *, unsigned *count, Process *found) {
  FAILS(nvmlDeviceGetComputeRunningProcesses);
  unsigned room = *count, there = mock::asked("MOCKGPU_PROCESSES", 0);
  *count = there;
  if (there > room) return 7;  // the buffer is too small
  for (unsigned i = 0; i < there; i++) found[i] = {i + 1, 1u << 30, 0, 0};
  return 0;
}
API int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, Process *found) {
  return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, found);
}
API int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, Process *found) {
  return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, found);
}
