// The upper limit for the op's server: a ping-pong over gRPC's generic API that answers each
// message on a stream immediately, with the same bytes except for the call id. No batching, checks
// or work.
//
// Usage: raw_server REPLY_FILE THREADS ADDRESS...
// Prints the ports as a JSON list (0 or 1 for addresses without one).

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kHeaderBytes = 24;
constexpr size_t kCallIdOffset = 8;

// A frame as two slices: its own header, with the call id, and the borrowed rest.
grpc::ByteBuffer MakeFrame(const std::string& bytes, const char* call_id) {
  char header[kHeaderBytes];
  std::memcpy(header, bytes.data(), kHeaderBytes);
  std::memcpy(header + kCallIdOffset, call_id, 8);
  grpc::Slice slices[2] = {grpc::Slice(header, kHeaderBytes),
                           grpc::Slice(bytes.data() + kHeaderBytes, bytes.size() - kHeaderBytes,
                                       grpc::Slice::STATIC_SLICE)};
  return grpc::ByteBuffer(slices, 2);
}

// gRPC splits messages at the end of its reads, which can be anywhere.
bool CopyHeader(const grpc::ByteBuffer& message, char* header) {
  std::vector<grpc::Slice> slices;
  if (message.Length() < kHeaderBytes || !message.Dump(&slices).ok()) return false;
  size_t copied = 0;
  for (size_t i = 0; copied < kHeaderBytes; ++i) {
    const size_t size = std::min(slices[i].size(), kHeaderBytes - copied);
    std::memcpy(header + copied, slices[i].begin(), size);
    copied += size;
  }
  return true;
}

class Stream {
 public:
  Stream(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue,
         const std::string* reply)
      : service_(service), queue_(queue), reply_(reply), stream_(&context_) {
    service_->RequestCall(&context_, &stream_, queue_, queue_, this);
  }

  void Proceed(bool ok) {
    switch (state_) {
      case State::kConnecting:
        if (!ok) return delete this;  // The server is shutting down.
        new Stream(service_, queue_, reply_);
        return Read();
      case State::kReading:
        if (!ok) return Finish();
        return Write();
      case State::kWriting:
        if (!ok) return Finish();
        return Read();
      case State::kFinishing:
        return delete this;
    }
  }

 private:
  enum class State { kConnecting, kReading, kWriting, kFinishing };

  void Read() {
    state_ = State::kReading;
    stream_.Read(&request_, this);
  }

  void Write() {
    char header[kHeaderBytes];
    if (!CopyHeader(request_, header)) return Finish();
    state_ = State::kWriting;
    stream_.Write(MakeFrame(*reply_, header + kCallIdOffset), this);
  }

  void Finish() {
    state_ = State::kFinishing;
    stream_.Finish(grpc::Status::OK, this);
  }

  grpc::AsyncGenericService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  const std::string* const reply_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  grpc::ByteBuffer request_;
  State state_ = State::kConnecting;
};

void Serve(grpc::ServerCompletionQueue* queue) {
  void* tag;
  bool ok;
  while (queue->Next(&tag, &ok)) static_cast<Stream*>(tag)->Proceed(ok);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: raw_server REPLY_FILE THREADS ADDRESS...\n");
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string reply((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (reply.size() < kHeaderBytes) {
    std::fprintf(stderr, "no reply frame in %s\n", argv[1]);
    return 2;
  }
  grpc::AsyncGenericService service;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  std::vector<int> ports(argc - 3);
  for (size_t i = 0; i < ports.size(); ++i) {
    builder.AddListeningPort(argv[3 + i], grpc::InsecureServerCredentials(), &ports[i]);
  }
  builder.RegisterAsyncGenericService(&service);
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues;
  for (int i = 0; i < std::atoi(argv[2]); ++i) queues.push_back(builder.AddCompletionQueue());
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  for (size_t i = 0; i < ports.size(); ++i) std::printf("%s%d", i ? ", " : "[", ports[i]);
  std::printf("]\n");
  std::fflush(stdout);
  std::vector<std::thread> threads;
  for (auto& queue : queues) {
    new Stream(&service, queue.get(), &reply);
    threads.emplace_back(Serve, queue.get());
  }
  for (std::thread& thread : threads) thread.join();  // Until the process is killed.
  return 0;
}
