// The CUDA runtime: memory is the host's, kernels do nothing, and what CUDA forbids during a capture fails.
#include "mock.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "driver_types.h"
#include "vector_types.h"

namespace {

struct Node {
  mock::Kind kind;
  std::string name;
};
struct Capture {
  std::vector<Node> nodes;
  bool broken = false;
};
struct Stream {
  int device = 0;
  Capture *capture = nullptr;
  bool legacy = false;
};
struct Event {
  Stream *stream = nullptr;
  Capture *capture = nullptr;
  unsigned long long at = 0;
};
struct Block {
  size_t bytes;
  int device;  // -1: pinned memory of the host
};
struct Launch {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};

const int MOST = 16;
std::recursive_mutex lock;
using Locked = std::lock_guard<std::recursive_mutex>;
std::map<const char *, Block> blocks;
std::map<const void *, std::string> kernels;
std::map<unsigned long long, Capture *> captures;  // under way
unsigned long long captured = 0;
std::map<Capture *, unsigned long long> numbers;
Stream legacy[MOST];
size_t used[MOST];
bool working[MOST];
std::string events;
bool recording = false;
thread_local int device = 0;
thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
thread_local cudaError_t last = cudaSuccess;
thread_local std::vector<Launch> configured;

cudaError_t fails(cudaError_t error) { return last = error; }

Stream *stream_of(cudaStream_t stream) {
  if (stream && stream != cudaStreamLegacy && stream != cudaStreamPerThread) return (Stream *)stream;
  legacy[device].device = device;
  legacy[device].legacy = true;
  return &legacy[device];
}

/// An act that waits or allocates: while a capture is under way it breaks that, unless this thread has relaxed itself.
cudaError_t during_capture(const char *act) {
  Locked locked(lock);
  if (captures.empty() || mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (auto &one : captures) one.second->broken = true;
  mock::tell("forbidden %s", act);
  return fails(cudaErrorStreamCaptureUnsupported);
}

cudaError_t waited(Stream *stream, int on, const char *what) {
  Locked locked(lock);
  mock::tell("sync %s", what);
  working[on] = false;
  if (stream && stream->capture) {
    stream->capture->broken = true;
    mock::tell("forbidden %s", what);
    return fails(cudaErrorStreamCaptureUnsupported);
  }
  return stream ? cudaSuccess : during_capture(what);
}

const Block *block_of(const void *pointer) {
  auto after = blocks.upper_bound((const char *)pointer);
  if (after == blocks.begin()) return nullptr;
  --after;
  return (const char *)pointer < after->first + after->second.bytes ? &after->second : nullptr;
}

cudaError_t allocate(void **pointer, size_t bytes, int where) {
  bytes = (bytes + 4095) & ~size_t(4095);
  if (where >= 0 && used[where] + bytes > (size_t)mock::asked("MOCKGPU_BYTES", 139l << 30))
    return fails(cudaErrorMemoryAllocation);
  void *found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return fails(cudaErrorMemoryAllocation);
  blocks[(const char *)found] = {bytes, where};
  if (where >= 0) used[where] += bytes;
  *pointer = found;
  return cudaSuccess;
}

cudaError_t release(void *pointer) {
  Locked locked(lock);
  auto found = blocks.find((const char *)pointer);
  if (found == blocks.end()) return cudaSuccess;
  if (found->second.device >= 0) used[found->second.device] -= found->second.bytes;
  munmap(pointer, found->second.bytes);
  blocks.erase(found);
  return cudaSuccess;
}

cudaError_t copy(void *to, const void *from, size_t bytes, cudaStream_t stream, bool waits) {
  Locked locked(lock);
  const Block *target = block_of(to), *source = block_of(from);
  bool down = source && source->device >= 0 && !(target && target->device >= 0);
  bool up = target && target->device >= 0 && !(source && source->device >= 0);
  bool pinned = (down ? target : source) != nullptr;
  if ((up || down) && !pinned && stream_of(stream)->capture) {
    stream_of(stream)->capture->broken = true;
    mock::tell("forbidden copy of pageable memory");
    return fails(cudaErrorStreamCaptureUnsupported);
  }
  mock::Kind kind = down ? mock::DEVICE_TO_HOST : up ? mock::HOST_TO_DEVICE : mock::ON_DEVICE;
  if (int error = mock::queue(stream, kind, kind == mock::ON_DEVICE ? "copy" : pinned ? "pinned" : "pageable"))
    return (cudaError_t)error;
  if (waits || ((up || down) && !pinned)) waited(stream_of(stream), device, "copy");
  if (down && bytes <= 64)
    memset(to, 0, bytes);  // what a kernel would have written is not known: numbers that are read back are 0
  else
    memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t launch(const void *function, dim3 grid, dim3 block, cudaStream_t stream) {
  size_t threads = (size_t)block.x * block.y * block.z;
  if (!grid.x || !grid.y || !grid.z || !threads || threads > 1024) return fails(cudaErrorInvalidConfiguration);
  Locked locked(lock);
  auto found = kernels.find(function);
  return (cudaError_t)mock::queue(stream, mock::KERNEL, found == kernels.end() ? "?" : found->second.c_str());
}

}  // namespace

namespace mock {

const char *asked(const char *name) { return getenv(name); }
long asked(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text ? atol(text) : otherwise;
}
int devices() {
  int there = asked("MOCKGPU_DEVICES", 1), shown = 0;
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return there;
  for (const char *at = visible; at && *at && *at != '-'; at = strchr(at, ',') ? strchr(at, ',') + 1 : nullptr) shown++;
  return shown < there ? shown : there;
}
int current_device() { return device; }
bool busy(int number) { return working[number]; }
void uuid(int number, void *bytes) {
  for (int i = 0; i < 16; i++) ((unsigned char *)bytes)[i] = 16 * number + i;
}
unsigned long long now() {
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return 1000000000ull * time.tv_sec + time.tv_nsec;
}

void tell(const char *format, ...) {
  char line[600];
  va_list rest;
  va_start(rest, format);
  vsnprintf(line, sizeof line, format, rest);
  va_end(rest);
  Locked locked(lock);
  if (recording) events.append(line).append("\n");
  const char *path = getenv("MOCKGPU_LOG");
  if (!path || !strncmp(line, "work", 4)) return;
  if (FILE *file = fopen(path, "a")) {
    fprintf(file, "%d %s\n", getpid(), line);
    fclose(file);
  }
}

int queue(void *where, Kind kind, const char *name) {
  static const char *const words[] = {"kernel", "memset", "to-device", "to-host", "on-device"};
  Locked locked(lock);
  Stream *stream = stream_of((cudaStream_t)where);
  if (stream->device != device) {
    tell("forbidden work in a stream of device %d while the current one is %d", stream->device, device);
    return fails(cudaErrorInvalidResourceHandle);
  }
  if (stream->capture) {
    stream->capture->nodes.push_back({kind, name});
    return 0;
  }
  if (stream->legacy && !captures.empty()) return during_capture("work in the legacy stream");
  working[device] = true;
  tell("work %s %s", words[kind], name);
  seen(device, where, kind, name, 0);
  return 0;
}

}  // namespace mock

// For the tests, by ctypes.
API void mockgpu_record(int on) {
  Locked locked(lock);
  recording = on;
  events.clear();
}
API const char *mockgpu_events() {
  Locked locked(lock);
  static std::string copied;
  copied = events;
  return copied.c_str();
}

#define RUNTIME(name) API cudaError_t name
#define IGNORED(name, ...) \
  RUNTIME(name)(__VA_ARGS__) { return cudaSuccess; }

// Devices.
RUNTIME(cudaGetDeviceCount)(int *count) {
  *count = 0;
  if (mock::asked("MOCKGPU_DRIVER", 13000) < 13000) return fails(cudaErrorInsufficientDriver);
  if (long error = mock::asked("MOCKGPU_CUINIT", 0)) return fails((cudaError_t)error);
  *count = mock::devices();
  return *count ? cudaSuccess : fails(cudaErrorNoDevice);
}
RUNTIME(cudaSetDevice)(int number) {
  if (number < 0 || number >= mock::devices()) return fails(cudaErrorInvalidDevice);
  device = number;
  return cudaSuccess;
}
RUNTIME(cudaGetDevice)(int *number) {
  *number = device;
  return cudaSuccess;
}
RUNTIME(cudaGetDeviceProperties)(cudaDeviceProp *found, int number) {
  cudaDeviceProp made = {};
  snprintf(made.name, sizeof made.name, "Mock GPU %d", number);
  mock::uuid(number, &made.uuid);
  made.totalGlobalMem = mock::asked("MOCKGPU_BYTES", 139l << 30);
  made.major = mock::asked("MOCKGPU_CAPABILITY", 90) / 10, made.minor = mock::asked("MOCKGPU_CAPABILITY", 90) % 10;
  made.multiProcessorCount = 132, made.warpSize = 32, made.maxThreadsPerBlock = 1024;
  made.maxThreadsPerMultiProcessor = 2048, made.maxBlocksPerMultiProcessor = 32, made.regsPerBlock = 65536;
  made.regsPerMultiprocessor = 65536, made.sharedMemPerBlock = 48 << 10, made.sharedMemPerMultiprocessor = 228 << 10;
  made.sharedMemPerBlockOptin = 227 << 10, made.l2CacheSize = 50 << 20, made.memoryBusWidth = 5120;
  made.maxThreadsDim[0] = made.maxThreadsDim[1] = 1024, made.maxThreadsDim[2] = 64;
  made.maxGridSize[0] = 2147483647, made.maxGridSize[1] = made.maxGridSize[2] = 65535;
  made.concurrentKernels = made.unifiedAddressing = made.canMapHostMemory = made.cooperativeLaunch = 1;
  made.textureAlignment = 512, made.pciBusID = number + 1;
  *found = made;
  return cudaSuccess;
}
RUNTIME(cudaDeviceGetAttribute)(int *value, cudaDeviceAttr attribute, int number) {
  cudaDeviceProp found;
  cudaGetDeviceProperties(&found, number);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = found.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = found.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = found.minor; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = found.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = found.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = found.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = found.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = found.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = found.regsPerBlock; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = found.regsPerMultiprocessor; break;
    case cudaDevAttrMaxGridDimX: *value = found.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = found.maxGridSize[1]; break;
    case cudaDevAttrWarpSize: *value = found.warpSize; break;
    case cudaDevAttrL2CacheSize: *value = found.l2CacheSize; break;
    case cudaDevAttrClockRate: *value = 1980000; break;
    default: *value = 1;
  }
  return cudaSuccess;
}
RUNTIME(cudaDriverGetVersion)(int *version) {
  *version = mock::asked("MOCKGPU_DRIVER", 13000);
  return cudaSuccess;
}
RUNTIME(cudaRuntimeGetVersion)(int *version) {
  *version = 13000;
  return cudaSuccess;
}
RUNTIME(cudaDeviceSynchronize)() { return waited(nullptr, device, "device"); }
RUNTIME(cudaDeviceGetPCIBusId)(char *text, int size, int number) {
  snprintf(text, size, "00000000:%02x:00.0", number + 1);
  return cudaSuccess;
}
RUNTIME(cudaDeviceCanAccessPeer)(int *can, int, int) {
  *can = 1;
  return cudaSuccess;
}
IGNORED(cudaDeviceEnablePeerAccess, int, unsigned)
RUNTIME(cudaDeviceGetStreamPriorityRange)(int *least, int *greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
RUNTIME(cudaDeviceGetDefaultMemPool)(cudaMemPool_t *pool, int) {
  *pool = (cudaMemPool_t)1;
  return cudaSuccess;
}
RUNTIME(cudaDeviceGetGraphMemAttribute)(int, cudaGraphMemAttributeType, void *value) {
  *(unsigned long long *)value = 0;
  return cudaSuccess;
}
RUNTIME(cudaMemPoolGetAttribute)(cudaMemPool_t, cudaMemPoolAttr, void *value) {
  *(unsigned long long *)value = 0;
  return cudaSuccess;
}

// Errors.
RUNTIME(cudaPeekAtLastError)() { return last; }
RUNTIME(cudaGetLastError)() {
  cudaError_t error = last;
  last = cudaSuccess;
  return error;
}
API const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    default: return "cudaError";
  }
}
API const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    default: return "an error that the mock made";
  }
}

// Memory.
RUNTIME(cudaMalloc)(void **pointer, size_t bytes) {
  if (cudaError_t error = during_capture("allocation")) return error;
  Locked locked(lock);
  mock::tell("malloc %d %zu", device, bytes);
  return allocate(pointer, bytes, device);
}
RUNTIME(cudaFree)(void *pointer) {
  if (cudaError_t error = pointer ? during_capture("free") : cudaSuccess) return error;
  return release(pointer);
}
RUNTIME(cudaMallocAsync)(void **pointer, size_t bytes, cudaStream_t) { return cudaMalloc(pointer, bytes); }
RUNTIME(cudaFreeAsync)(void *pointer, cudaStream_t) { return release(pointer); }
RUNTIME(cudaMemGetInfo)(size_t *free, size_t *total) {
  *total = mock::asked("MOCKGPU_BYTES", 139l << 30);
  *free = *total - used[device];
  return cudaSuccess;
}
RUNTIME(cudaHostAlloc)(void **pointer, size_t bytes, unsigned) {
  if (cudaError_t error = during_capture("allocation of pinned memory")) return error;
  Locked locked(lock);
  return allocate(pointer, bytes, -1);
}
RUNTIME(cudaFreeHost)(void *pointer) { return release(pointer); }
IGNORED(cudaHostRegister, void *, size_t, unsigned)
IGNORED(cudaHostUnregister, void *)
RUNTIME(cudaPointerGetAttributes)(cudaPointerAttributes *found, const void *pointer) {
  Locked locked(lock);
  const Block *block = block_of(pointer);
  memset(found, 0, sizeof *found);
  found->type = !block ? cudaMemoryTypeUnregistered : block->device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  found->device = block && block->device >= 0 ? block->device : device;
  found->devicePointer = block ? (void *)pointer : nullptr;
  found->hostPointer = block && block->device < 0 ? (void *)pointer : nullptr;
  return cudaSuccess;
}
RUNTIME(cudaMemcpyAsync)(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, bytes, stream, false);
}
RUNTIME(cudaMemcpy)(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
  return copy(to, from, bytes, nullptr, true);
}
RUNTIME(cudaMemcpyPeerAsync)(void *to, int, const void *from, int, size_t bytes, cudaStream_t stream) {
  return copy(to, from, bytes, stream, false);
}
IGNORED(cudaMemcpyToSymbol, const void *, const void *, size_t, size_t, cudaMemcpyKind)
RUNTIME(cudaMemsetAsync)(void *pointer, int value, size_t bytes, cudaStream_t stream) {
  memset(pointer, value, bytes);
  return (cudaError_t)mock::queue(stream, mock::MEMSET, "memset");
}
RUNTIME(cudaMemset)(void *pointer, int value, size_t bytes) { return cudaMemsetAsync(pointer, value, bytes, nullptr); }
RUNTIME(cudaGetSymbolAddress)(void **pointer, const void *) {
  static char symbol[4096];
  *pointer = symbol;
  return cudaSuccess;
}

// Streams and events.
RUNTIME(cudaStreamCreateWithPriority)(cudaStream_t *stream, unsigned, int) {
  *stream = (cudaStream_t) new Stream{device};
  return cudaSuccess;
}
RUNTIME(cudaStreamCreateWithFlags)(cudaStream_t *stream, unsigned) { return cudaStreamCreateWithPriority(stream, 0, 0); }
RUNTIME(cudaStreamCreate)(cudaStream_t *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
IGNORED(cudaStreamDestroy, cudaStream_t)
RUNTIME(cudaStreamGetPriority)(cudaStream_t, int *priority) {
  *priority = 0;
  return cudaSuccess;
}
RUNTIME(cudaStreamQuery)(cudaStream_t) { return during_capture("query of a stream"); }
RUNTIME(cudaStreamSynchronize)(cudaStream_t stream) { return waited(stream_of(stream), device, "stream"); }
RUNTIME(cudaStreamWaitEvent)(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Locked locked(lock);
  Capture *capture = ((Event *)event)->capture;
  if (capture && numbers.count(capture)) stream_of(stream)->capture = capture;
  return cudaSuccess;
}
RUNTIME(cudaEventCreateWithFlags)(cudaEvent_t *event, unsigned) {
  *event = (cudaEvent_t) new Event;
  return cudaSuccess;
}
RUNTIME(cudaEventCreate)(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
RUNTIME(cudaEventDestroy)(cudaEvent_t event) {
  delete (Event *)event;
  return cudaSuccess;
}
RUNTIME(cudaEventRecordWithFlags)(cudaEvent_t event, cudaStream_t stream, unsigned) {
  Locked locked(lock);
  *(Event *)event = {stream_of(stream), stream_of(stream)->capture, mock::now()};
  return cudaSuccess;
}
RUNTIME(cudaEventRecord)(cudaEvent_t event, cudaStream_t stream) { return cudaEventRecordWithFlags(event, stream, 0); }
RUNTIME(cudaEventQuery)(cudaEvent_t) { return during_capture("query of an event"); }
RUNTIME(cudaEventSynchronize)(cudaEvent_t event) {
  Stream *stream = ((Event *)event)->stream;
  return waited(stream, stream ? stream->device : device, "event");
}
RUNTIME(cudaEventElapsedTime)(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
  Event *begin = (Event *)from, *end = (Event *)to;
  if (!begin->at || !end->at) return fails(cudaErrorInvalidResourceHandle);
  *milliseconds = 1e-6f * (float)(long long)(end->at - begin->at);
  return cudaSuccess;
}
RUNTIME(cudaStreamAddCallback)(cudaStream_t stream, void (*work)(cudaStream_t, cudaError_t, void *), void *with, unsigned) {
  work(stream, cudaSuccess, with);
  return cudaSuccess;
}
RUNTIME(cudaLaunchHostFunc)(cudaStream_t, void (*work)(void *), void *with) {
  work(with);
  return cudaSuccess;
}

// Capture and graphs.
RUNTIME(cudaStreamBeginCapture)(cudaStream_t stream, cudaStreamCaptureMode) {
  Locked locked(lock);
  Stream *one = stream_of(stream);
  if (one->legacy || one->capture) return fails(cudaErrorStreamCaptureUnsupported);
  one->capture = new Capture;
  captures[++captured] = one->capture;
  numbers[one->capture] = captured;
  return cudaSuccess;
}
RUNTIME(cudaStreamEndCapture)(cudaStream_t stream, cudaGraph_t *graph) {
  Locked locked(lock);
  Stream *one = stream_of(stream);
  Capture *capture = one->capture;
  *graph = nullptr;
  one->capture = nullptr;
  captures.erase(numbers[capture]);
  numbers.erase(capture);
  if (capture->broken || mock::asked("MOCKGPU_CAPTURE_FAILS", 0)) return fails(cudaErrorStreamCaptureInvalidated);
  *graph = (cudaGraph_t)capture;
  mock::tell("captured %zu", capture->nodes.size());
  return cudaSuccess;
}
RUNTIME(cudaStreamIsCapturing)(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  Locked locked(lock);
  Stream *one = stream_of(stream);
  if (one->capture && !numbers.count(one->capture)) one->capture = nullptr;  // it had joined one that has ended
  *status = !one->capture          ? cudaStreamCaptureStatusNone
            : one->capture->broken ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
RUNTIME(cudaStreamGetCaptureInfo)
(cudaStream_t stream, cudaStreamCaptureStatus *status, unsigned long long *number, cudaGraph_t *graph,
 const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *count) {
  Locked locked(lock);
  cudaStreamIsCapturing(stream, status);
  Capture *capture = stream_of(stream)->capture;
  if (number) *number = capture ? numbers[capture] : 0;
  if (graph) *graph = (cudaGraph_t)capture;
  if (nodes) *nodes = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  return cudaSuccess;
}
RUNTIME(cudaThreadExchangeStreamCaptureMode)(cudaStreamCaptureMode *wanted) {
  cudaStreamCaptureMode before = mode;
  mode = *wanted;
  *wanted = before;
  return cudaSuccess;
}
RUNTIME(cudaGraphGetNodes)(cudaGraph_t graph, cudaGraphNode_t *, size_t *count) {
  *count = ((Capture *)graph)->nodes.size();
  return cudaSuccess;
}
RUNTIME(cudaGraphInstantiateWithFlags)(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long) {
  *made = (cudaGraphExec_t) new Capture(*(Capture *)graph);
  return cudaSuccess;
}
IGNORED(cudaGraphDestroy, cudaGraph_t)
IGNORED(cudaGraphExecDestroy, cudaGraphExec_t)
RUNTIME(cudaGraphLaunch)(cudaGraphExec_t graph, cudaStream_t stream) {
  Locked locked(lock);
  Capture *recorded = (Capture *)graph;
  mock::tell("replay %zu", recorded->nodes.size());
  for (Node &node : recorded->nodes)
    if (int error = mock::queue(stream, node.kind, node.name.c_str())) return (cudaError_t)error;
  return cudaSuccess;
}

// Kernels.
API void **__cudaRegisterFatBinary(void *) {
  static void *handle;
  return &handle;
}
API void __cudaRegisterFatBinaryEnd(void **) {}
API void __cudaUnregisterFatBinary(void **) {}
API void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
API void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, uint3 *, uint3 *, dim3 *,
                                dim3 *, int *) {
  kernels[host] = name;
}
API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configured.push_back({grid, block, shared, stream});
  return 0;
}
RUNTIME(__cudaPopCallConfiguration)(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  Launch &top = configured.back();
  *grid = top.grid, *block = top.block, *shared = top.shared, *(cudaStream_t *)stream = top.stream;
  configured.pop_back();
  return cudaSuccess;
}
RUNTIME(__cudaGetKernel)(cudaKernel_t *kernel, const void *function) {
  *kernel = (cudaKernel_t)function;
  return cudaSuccess;
}
RUNTIME(cudaLaunchKernel)(const void *function, dim3 grid, dim3 block, void **, size_t, cudaStream_t stream) {
  return launch(function, grid, block, stream);
}
RUNTIME(__cudaLaunchKernel)(cudaKernel_t kernel, dim3 grid, dim3 block, void **, size_t, cudaStream_t stream) {
  return launch((const void *)kernel, grid, block, stream);
}
RUNTIME(cudaLaunchKernelExC)(const cudaLaunchConfig_t *config, const void *function, void **) {
  return launch(function, config->gridDim, config->blockDim, config->stream);
}
RUNTIME(cudaFuncGetAttributes)(cudaFuncAttributes *found, const void *) {
  memset(found, 0, sizeof *found);
  found->maxThreadsPerBlock = 1024, found->numRegs = 32, found->ptxVersion = found->binaryVersion = 90;
  found->maxDynamicSharedSizeBytes = 227 << 10;
  return cudaSuccess;
}
IGNORED(cudaFuncSetAttribute, const void *, cudaFuncAttribute, int)
RUNTIME(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(int *blocks, const void *, int, size_t, unsigned) {
  *blocks = 4;
  return cudaSuccess;
}
RUNTIME(cudaGetDriverEntryPointByVersion)
(const char *name, void **found, unsigned, unsigned long long, cudaDriverEntryPointQueryResult *how) {
  static void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
  *found = dlsym(driver, name);
  if (how) *how = *found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
