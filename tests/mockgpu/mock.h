// What the parts of the mock share. See README.md.
#pragma once
#include <cstddef>

#define API extern "C" __attribute__((visibility("default")))

namespace mock {

enum Kind { KERNEL, MEMSET, HOST_TO_DEVICE, DEVICE_TO_HOST, ON_DEVICE };

/// An environment variable as text, or nullptr; as a number, or `otherwise`.
const char *asked(const char *name);
long asked(const char *name, long otherwise);
int devices();
int current_device();
/// Work comes into a stream of the current device (nullptr: the legacy one). Returns a cudaError_t.
int queue(void *stream, Kind kind, const char *name);
/// Whether any work came into a device's streams since the host last waited for it.
bool busy(int device);
/// Something worth a line for whoever listens.
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/// A device's UUID, 16 bytes.
void uuid(int device, void *bytes);
/// Nanoseconds, as CUPTI and the host's clock count them.
unsigned long long now();
/// For CUPTI's listener: `nodes` kernels, or one piece of work, came from the call under way in this thread.
void seen(int device, void *stream, Kind kind, const char *name, size_t bytes);

}  // namespace mock
