// Protocol version 1 of the wire format (docs/wire_format.md) on gRPC's byte buffers.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_WIRE_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_WIRE_H_

#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <string_view>
#include <vector>

#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl::transport {

constexpr char kCallMethod[] = "/seed_rl.Inference/Call";
constexpr char kDescribeMethod[] = "/seed_rl.Inference/Describe";

enum class Kind : uint8_t { kCall = 0, kReply = 1, kError = 2 };

// Call id of an error frame about a frame with an unreadable header.
constexpr uint64_t kUnreadableCallId = ~uint64_t{0};

// Bytes per element; 0 for strings.
size_t ItemSize(DType dtype);
// The name in messages and in Describe, such as "int32".
const char* DTypeName(DType dtype);
// The error of a call for which an allocation failed.
Status OutOfMemory();
// Formats a shape, e.g. "[2,84,84]".
std::string ShapeString(const int64_t* dims, size_t rank);

// A position in the slices of a message.
class Cursor {
 public:
  Cursor() = default;
  explicit Cursor(const std::vector<grpc::Slice>* slices) : slices_(slices) {}

  // Copies the next `size` bytes, which must exist, or only skips them if `destination` is null.
  void Read(char* destination, size_t size);
  void Skip(size_t size) { Read(nullptr, size); }

 private:
  const std::vector<grpc::Slice>* slices_ = nullptr;
  size_t slice_ = 0;
  size_t offset_ = 0;  // In the slice.
};

struct TensorView {
  DType dtype;
  uint8_t rank;
  int64_t dims[kMaxRank];
  size_t elements;
  size_t bytes;    // Size of the payload.
  Cursor payload;  // Start of the payload.

  std::vector<int64_t> Dims() const { return {dims, dims + rank}; }
  // Copies the `count` bytes of numbers that start at byte `first`. Of bools, any byte but 0
  // becomes 1: a peer may send others, which C++ does not allow.
  void CopyTo(char* destination, size_t first, size_t count) const;
  // Reads `count` strings, starting at element `first`.
  std::vector<std::string> Strings(size_t first, size_t count) const;
};

// A parsed frame; keeps the message alive and does not copy payloads.
class Frame {
 public:
  // Parses a message, without the lengths of strings. On failure, call_id() is still valid if the
  // header was readable, otherwise kUnreadableCallId.
  Status Parse(const grpc::ByteBuffer& message);
  // Checks the lengths of the strings of all tensors. Takes time in proportion to their number:
  // servers check first that they want the tensors.
  Status CheckStrings() const;
  // Copies of the tensors. Throws std::bad_alloc.
  std::vector<Tensor> Copies() const;

  Kind kind() const { return kind_; }
  uint64_t call_id() const { return call_id_; }
  uint32_t function() const { return code_; }
  uint32_t error_code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::vector<TensorView>& tensors() const { return tensors_; }

 private:
  Status ParseAll(const grpc::ByteBuffer& message);
  Status ParseTensor(Cursor* cursor, size_t* left);

  std::vector<grpc::Slice> slices_;
  Kind kind_ = Kind::kCall;
  uint64_t call_id_ = kUnreadableCallId;
  uint32_t code_ = 0;
  std::string message_;
  std::vector<TensorView> tensors_;
};

// Builds a frame. Large payloads are shared with their owners instead of copied, unless they are
// only a small part of the memory that would be kept until the frame has been sent.
class FrameWriter {
 public:
  FrameWriter(Kind kind, uint64_t call_id, uint32_t function, size_t num_tensors);

  void Add(DType dtype, const int64_t* dims, size_t rank, const char* data, size_t bytes,
           const std::shared_ptr<const void>& owner, size_t owner_bytes);
  void AddStrings(const int64_t* dims, size_t rank, const std::string* strings, size_t count);
  void Add(const Tensor& tensor);

  grpc::ByteBuffer Finish();

 private:
  void AddHeader(DType dtype, const int64_t* dims, size_t rank, uint64_t bytes);
  template <typename T>
  void Append(T value) {
    small_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Flush();

  std::string small_;  // Copied bytes that are not yet in a slice.
  std::vector<grpc::Slice> slices_;
};

grpc::ByteBuffer ErrorFrame(uint64_t call_id, const Status& status);

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_WIRE_H_
