// What torch calls of cuBLAS, cuBLASLt, cuSOLVER and cuDNN, each product, convolution, normalization or factor one kernel.
// And CUPTI.
#include "mock.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "cupti.h"

namespace {
struct Handle {
  void *stream = nullptr;
  int math = 0, pointers = 0;
};
int made(void **handle) {
  *handle = new Handle;
  return 0;
}
int kernel(void *handle, const char *name) { return mock::queue(((Handle *)handle)->stream, mock::KERNEL, name); }
}  // namespace

#define MAKES(name) \
  API int name(void **handle, ...) { return made(handle); }
#define IGNORED(name) \
  API int name(...) { return 0; }
#define KERNEL_OF(name) \
  API int name(void *handle, ...) { return kernel(handle, #name); }

// cuBLAS.
MAKES(cublasCreate_v2)
IGNORED(cublasDestroy_v2)
IGNORED(cublasSetWorkspace_v2)
IGNORED(cublasSetSmCountTarget)
API int cublasSetStream_v2(Handle *handle, void *stream) {
  handle->stream = stream;
  return 0;
}
API int cublasSetMathMode(Handle *handle, int mode) {
  handle->math = mode;
  return 0;
}
API int cublasGetMathMode(Handle *handle, int *mode) {
  *mode = handle->math;
  return 0;
}
API int cublasSetPointerMode_v2(Handle *handle, int mode) {
  handle->pointers = mode;
  return 0;
}
API int cublasGetPointerMode_v2(Handle *handle, int *mode) {
  *mode = handle->pointers;
  return 0;
}
KERNEL_OF(cublasSgemm_v2)
KERNEL_OF(cublasDgemm_v2)
KERNEL_OF(cublasSgemmEx)
KERNEL_OF(cublasGemmEx)
KERNEL_OF(cublasSgemmStridedBatched)
KERNEL_OF(cublasDgemmStridedBatched)
KERNEL_OF(cublasGemmStridedBatchedEx)
KERNEL_OF(cublasSgemv_v2)
KERNEL_OF(cublasDgemv_v2)
KERNEL_OF(cublasSdot_v2)
KERNEL_OF(cublasDdot_v2)
KERNEL_OF(cublasDotEx)

API size_t cublasLtGetVersion() { return 130000; }
MAKES(cublasLtMatmulDescCreate)
IGNORED(cublasLtMatmulDescDestroy)
IGNORED(cublasLtMatmulDescSetAttribute)
MAKES(cublasLtMatmulPreferenceCreate)
IGNORED(cublasLtMatmulPreferenceDestroy)
IGNORED(cublasLtMatmulPreferenceSetAttribute)
MAKES(cublasLtMatrixLayoutCreate)
IGNORED(cublasLtMatrixLayoutDestroy)
IGNORED(cublasLtMatrixLayoutSetAttribute)
API int cublasLtMatmulAlgoGetHeuristic(void *, void *, void *, void *, void *, void *, void *, int, void *found, int *count) {
  memset(found, 0, 96);  // a cublasLtMatmulHeuristicResult_t
  *count = 1;
  return 0;
}
API int cublasLtMatmul(void *, void *, const void *, const void *, void *, const void *, void *, const void *,
                       const void *, void *, void *, void *, const void *, void *, size_t, void *stream) {
  return mock::queue(stream, mock::KERNEL, "cublasLtMatmul");
}

// cuSOLVER: the factor of Cholesky, and what is solved by it.
MAKES(cusolverDnCreate)
IGNORED(cusolverDnDestroy)
API int cusolverDnCreateParams(void **parameters) { return made(parameters); }
IGNORED(cusolverDnDestroyParams)
API int cusolverDnSetStream(Handle *handle, void *stream) {
  handle->stream = stream;
  return 0;
}
API int cusolverDnXpotrf_bufferSize(void *, void *, int, int64_t, int, const void *, int64_t, int, size_t *device,
                                    size_t *host) {
  *device = *host = 256;
  return 0;
}
KERNEL_OF(cusolverDnXpotrf)
KERNEL_OF(cusolverDnDpotrfBatched)
KERNEL_OF(cusolverDnXpotrs)
KERNEL_OF(cusolverDnDpotrs)
KERNEL_OF(cusolverDnDpotrsBatched)

// cuDNN. Convolutions come through its descriptors, of which an execution plan is all that is known here.
API size_t cudnnGetVersion() { return 91900; }
API size_t cudnnGetCudartVersion() { return 13000; }
API const char *cudnnGetErrorString(int) { return "an error that the mock made"; }
MAKES(cudnnCreate)
IGNORED(cudnnDestroy)
API int cudnnSetStream(Handle *handle, void *stream) {
  handle->stream = stream;
  return 0;
}
API int cudnnGetStream(Handle *handle, void **stream) {
  *stream = handle->stream;
  return 0;
}
MAKES(cudnnCreateTensorDescriptor)
IGNORED(cudnnDestroyTensorDescriptor)
IGNORED(cudnnSetTensorNdDescriptor)
API int cudnnBackendCreateDescriptor(int, void **descriptor) { return made(descriptor); }
IGNORED(cudnnBackendDestroyDescriptor)
IGNORED(cudnnBackendFinalize)
IGNORED(cudnnBackendSetAttribute)
API int cudnnBackendGetAttribute(void *, int, int type, int64_t wanted, int64_t *count, void *values) {
  const int DESCRIPTOR = 15, LONG = 3;
  if (count) *count = type == DESCRIPTOR || type == LONG ? 1 : 0;
  if (type == LONG && wanted && values) *(int64_t *)values = 0;  // a number of engines, bytes of workspace
  return 0;
}
KERNEL_OF(cudnnBackendExecute)
static int some_workspace(size_t *bytes) {
  *bytes = 4096;
  return 0;
}
API int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *, int, int, void *, void *, void *, void *,
                                                                 void *, size_t *bytes) {
  return some_workspace(bytes);
}
API int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *, int, int, void *, void *, size_t *bytes) {
  return some_workspace(bytes);
}
API int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *, int, int, void *, void *, void *, void *, void *,
                                                          void *, void *, size_t *bytes) {
  return some_workspace(bytes);
}
IGNORED(cudnnDeriveBNTensorDescriptor)
KERNEL_OF(cudnnBatchNormalizationForwardTrainingEx)
KERNEL_OF(cudnnBatchNormalizationForwardInference)
KERNEL_OF(cudnnBatchNormalizationBackwardEx)

// CUPTI: a record of every call that queues work and one of the work, a microsecond long. MOCKGPU_CUPTI=0: not allowed.
namespace {
std::recursive_mutex lock;
std::set<int> wanted;  // kinds of records
uint8_t *buffer = nullptr;  // that the listener gave; here it holds pointers to records
size_t room = 0, filled = 0;
CUpti_BuffersCallbackRequestFunc request;
CUpti_BuffersCallbackCompleteFunc complete;
CUpti_TimestampCallbackFunc timestamp;
std::atomic<uint32_t> correlations{1};
thread_local std::vector<uint64_t> outer[16];  // correlation ids of who calls, by their kind

CUptiResult allowed() {
  return mock::asked("MOCKGPU_CUPTI", 1) ? CUPTI_SUCCESS : CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
}
uint64_t stamp() { return timestamp ? timestamp() : mock::now(); }
void hand_over() {
  if (buffer) complete(nullptr, 0, buffer, room, filled);
  buffer = nullptr, room = filled = 0;
}
template <class Record>
Record *record(CUpti_ActivityKind kind) {
  if (!wanted.count(kind)) return nullptr;
  Record *one = (Record *)calloc(1, sizeof(Record));
  one->kind = kind;
  size_t most = 0;
  if (filled + sizeof one > room) hand_over();
  if (!buffer) request(&buffer, &room, &most);
  memcpy(buffer + filled, &one, sizeof one);
  filled += sizeof one;
  return one;
}
}  // namespace

void mock::seen(int device, void *stream, Kind kind, const char *name, size_t bytes) {
  std::lock_guard<std::recursive_mutex> locked(lock);
  if (wanted.empty()) return;
  uint32_t correlation = correlations++;
  uint64_t begin = stamp();
  for (int kinds = 0; kinds < 16; kinds++)
    if (!outer[kinds].empty())
      if (auto *one = record<CUpti_ActivityExternalCorrelation>(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) {
        one->externalKind = (CUpti_ExternalCorrelationKind)kinds;
        one->externalId = outer[kinds].back();
        one->correlationId = correlation;
      }
  if (auto *one = record<CUpti_ActivityAPI>(CUPTI_ACTIVITY_KIND_RUNTIME)) {
    one->cbid = kind == KERNEL   ? CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000
                : kind == MEMSET ? CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020
                                 : CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020;
    one->start = begin, one->end = stamp();
    one->processId = getpid(), one->threadId = (uint32_t)syscall(SYS_gettid);
    one->correlationId = correlation;
  }
  if (kind == KERNEL) {
    if (auto *one = record<CUpti_ActivityKernel9>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) {
      one->start = begin + 1000, one->end = begin + 2000;
      one->deviceId = device, one->contextId = 1, one->streamId = stream ? 7 : 0;
      one->correlationId = correlation, one->name = strdup(name);
      one->gridX = one->gridY = one->gridZ = one->blockX = one->blockY = one->blockZ = 1;
    }
  } else if (kind == MEMSET) {
    if (auto *one = record<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET)) {
      one->start = begin + 1000, one->end = begin + 2000;
      one->deviceId = device, one->contextId = 1, one->correlationId = correlation, one->bytes = bytes;
    }
  } else if (auto *one = record<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY)) {
    one->start = begin + 1000, one->end = begin + 2000;
    one->copyKind = kind == HOST_TO_DEVICE   ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                    : kind == DEVICE_TO_HOST ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                             : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    one->deviceId = device, one->contextId = 1, one->correlationId = correlation, one->bytes = bytes;
  }
}

#define CUPTI(name) API CUptiResult name
CUPTI(cuptiGetVersion)(uint32_t *version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
CUPTI(cuptiGetResultString)(CUptiResult result, const char **text) {
  *text = result == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES";
  return CUPTI_SUCCESS;
}
CUPTI(cuptiSubscribe)(CUpti_SubscriberHandle *who, CUpti_CallbackFunc, void *) {
  *who = (CUpti_SubscriberHandle)1;
  return allowed();
}
CUPTI(cuptiUnsubscribe)(CUpti_SubscriberHandle) { return CUPTI_SUCCESS; }
CUPTI(cuptiEnableCallback)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId) { return allowed(); }
CUPTI(cuptiEnableDomain)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain) { return allowed(); }
CUPTI(cuptiFinalize)() { return CUPTI_SUCCESS; }
CUPTI(cuptiActivityRegisterCallbacks)
(CUpti_BuffersCallbackRequestFunc asked, CUpti_BuffersCallbackCompleteFunc completed) {
  request = asked, complete = completed;
  return allowed();
}
CUPTI(cuptiActivityRegisterTimestampCallback)(CUpti_TimestampCallbackFunc clock) {
  timestamp = clock;
  return allowed();
}
CUPTI(cuptiActivityEnable)(CUpti_ActivityKind kind) {
  if (allowed() != CUPTI_SUCCESS) return allowed();
  std::lock_guard<std::recursive_mutex> locked(lock);
  wanted.insert(kind);
  return CUPTI_SUCCESS;
}
CUPTI(cuptiActivityDisable)(CUpti_ActivityKind kind) {
  std::lock_guard<std::recursive_mutex> locked(lock);
  wanted.erase(kind);
  return CUPTI_SUCCESS;
}
CUPTI(cuptiActivityEnableRuntimeApi)(CUpti_CallbackId, uint8_t) { return allowed(); }
CUPTI(cuptiActivityEnableDriverApi)(CUpti_CallbackId, uint8_t) { return allowed(); }
CUPTI(cuptiActivityEnableCudaEventDeviceTimestamps)(uint8_t) { return allowed(); }
CUPTI(cuptiActivitySetAttribute)(CUpti_ActivityAttribute, size_t *, void *) { return allowed(); }
CUPTI(cuptiActivityPushExternalCorrelationId)(CUpti_ExternalCorrelationKind kind, uint64_t id) {
  outer[kind].push_back(id);
  return allowed();
}
CUPTI(cuptiActivityPopExternalCorrelationId)(CUpti_ExternalCorrelationKind kind, uint64_t *id) {
  if (outer[kind].empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  if (id) *id = outer[kind].back();
  outer[kind].pop_back();
  return CUPTI_SUCCESS;
}
CUPTI(cuptiActivityFlushAll)(uint32_t) {
  std::lock_guard<std::recursive_mutex> locked(lock);
  hand_over();
  return CUPTI_SUCCESS;
}
CUPTI(cuptiActivityGetNextRecord)(uint8_t *from, size_t valid, CUpti_Activity **one) {
  static thread_local uint8_t *reading = nullptr;
  static thread_local size_t at = 0;
  if (!*one || reading != from) reading = from, at = 0;
  if (at + sizeof(void *) > valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  memcpy(one, from + at, sizeof(void *));
  at += sizeof(void *);
  return CUPTI_SUCCESS;
}
CUPTI(cuptiActivityGetNumDroppedRecords)(CUcontext, uint32_t, size_t *dropped) {
  *dropped = 0;
  return CUPTI_SUCCESS;
}
