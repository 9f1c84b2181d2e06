#include "seed_rl/grpc/native/ops/library.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace seed_rl {
namespace {

struct Loaded {
  TransportLibrary library;
  absl::Status status;
};

Loaded Load() {
  Loaded loaded;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&LoadTransport), &info) == 0) {
    loaded.status = absl::InternalError("dladdr failed");
    return loaded;
  }
  const std::string self = info.dli_fname;
  const std::string path = self.substr(0, self.rfind('/') + 1) + "libseed_transport.so";
  // DEEPBIND: the transport's gRPC must prefer its own symbols to the equally named ones that
  // TensorFlow's libraries put into the global scope. NODELETE: gRPC's threads outlive all handles.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND | RTLD_NODELETE);
  if (handle == nullptr) {
    loaded.status = absl::FailedPreconditionError(
        absl::StrCat("Cannot load the transport library: ", dlerror(),
                     ". Is the gRPC system package (libgrpc++1.51 on Debian) installed?"));
    return loaded;
  }
  loaded.library.create_server =
      reinterpret_cast<transport::CreateServerFn*>(dlsym(handle, "seed_transport_create_server"));
  loaded.library.connect =
      reinterpret_cast<transport::ConnectFn*>(dlsym(handle, "seed_transport_connect"));
  if (loaded.library.create_server == nullptr || loaded.library.connect == nullptr) {
    loaded.status = absl::FailedPreconditionError(
        absl::StrCat(path, " has another version; rebuild the native libraries"));
  }
  return loaded;
}

}  // namespace

absl::Status LoadTransport(const TransportLibrary** library) {
  static const Loaded* const loaded = new Loaded(Load());
  *library = &loaded->library;
  return loaded->status;
}

}  // namespace seed_rl
