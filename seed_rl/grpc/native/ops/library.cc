#include "seed_rl/grpc/native/ops/library.h"

#include <dlfcn.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace seed_rl {
namespace {

absl::StatusOr<TransportLibrary> Load() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&LoadTransport), &info) == 0) {
    return absl::InternalError("dladdr failed");
  }
  const std::string self = info.dli_fname;
  const std::string path = self.substr(0, self.rfind('/') + 1) + "libseed_transport.so";
  // DEEPBIND: the transport's gRPC must prefer its own symbols to the equally named ones that
  // TensorFlow's libraries put into the global scope. NODELETE: gRPC's threads outlive all handles.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND | RTLD_NODELETE);
  if (handle == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("Cannot load the transport library: ", dlerror(),
                     ". Is the gRPC system package (libgrpc++1.51 on Debian) installed?"));
  }
  TransportLibrary library;
  library.create_server =
      reinterpret_cast<transport::CreateServerFn*>(dlsym(handle, "seed_transport_create_server"));
  library.connect =
      reinterpret_cast<transport::ConnectFn*>(dlsym(handle, "seed_transport_connect"));
  if (library.create_server == nullptr || library.connect == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has another version; rebuild the native libraries"));
  }
  return library;
}

}  // namespace

const absl::StatusOr<TransportLibrary>& LoadTransport() {
  static const auto* const library = new absl::StatusOr<TransportLibrary>(Load());
  return *library;
}

}  // namespace seed_rl
