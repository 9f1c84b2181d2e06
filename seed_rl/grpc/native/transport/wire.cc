#include "seed_rl/grpc/native/transport/wire.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <numeric>

#include "seed_rl/grpc/native/transport/buffer_pool.h"

namespace seed_rl::transport {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "The wire format is little-endian.");

// The first bytes of a frame.
constexpr char kMagic[4] = {'S', 'D', 'R', '1'};
constexpr size_t kFrameHeaderBytes = 24;
constexpr size_t kTensorHeaderBytes = 16;
// Smaller payloads are copied: a shared slice costs an allocation and an entry in sendmsg.
constexpr size_t kBorrowBytes = 4096;
// Payloads below this fraction of their owner's memory are copied: otherwise a client that does not
// read its replies could keep a whole batch's results with each row of its own.
constexpr size_t kBorrowFraction = 4;  // A quarter.
// Error messages are truncated to this size, below any sensible message limit.
constexpr size_t kMaxErrorBytes = 16 << 10;
// Largest product of nonzero dimensions; keeps sizes in bytes below 2^63.
constexpr uint64_t kMaxElements = uint64_t{1} << 59;

#pragma pack(push, 1)
struct FrameHeader {
  char magic[4];
  uint8_t kind;
  uint8_t zero;
  uint16_t num_tensors;
  uint64_t call_id;
  uint32_t code;
  uint32_t message_bytes;
};
struct TensorHeader {
  uint8_t dtype;
  uint8_t rank;
  uint16_t zero0;
  uint32_t zero1;
  uint64_t bytes;
};
#pragma pack(pop)
static_assert(sizeof(FrameHeader) == kFrameHeaderBytes);
static_assert(sizeof(TensorHeader) == kTensorHeaderBytes);

struct DTypeInfo {
  size_t size;
  const char* name;
};
constexpr DTypeInfo kDTypes[kNumDTypes] = {
    {1, "bool"},     {1, "uint8"},   {1, "int8"},    {2, "uint16"}, {2, "int16"},
    {4, "uint32"},   {4, "int32"},   {8, "uint64"},  {8, "int64"},  {2, "float16"},
    {2, "bfloat16"}, {4, "float32"}, {8, "float64"}, {0, "string"},
};

Status Malformed(const std::string& what) {
  return {Code::kInvalidArgument, "Malformed frame: " + what};
}

}  // namespace

size_t ItemSize(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].size; }

const char* DTypeName(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

Status OutOfMemory() { return {Code::kResourceExhausted, "Out of memory"}; }

std::string ShapeString(const int64_t* dims, size_t rank) {
  std::string text = "[";
  for (size_t i = 0; i < rank; ++i) {
    if (i > 0) text += ",";
    text += dims[i] < 0 ? "?" : std::to_string(dims[i]);
  }
  return text + "]";
}

void Cursor::Read(char* destination, size_t size) {
  while (size > 0) {
    const grpc::Slice& slice = (*slices_)[slice_];
    const size_t count = std::min(size, slice.size() - offset_);
    if (destination != nullptr) {
      std::memcpy(destination, slice.begin() + offset_, count);
      destination += count;
    }
    size -= count;
    offset_ += count;
    if (offset_ == slice.size()) {
      ++slice_;
      offset_ = 0;
    }
  }
}

void TensorView::CopyTo(char* destination, size_t first, size_t count) const {
  Cursor cursor = payload;
  cursor.Skip(first);
  cursor.Read(destination, count);
  if (dtype != DType::kBool) return;
  for (size_t i = 0; i < count; ++i) destination[i] = destination[i] != 0;
}

std::vector<std::string> TensorView::Strings(size_t first, size_t count) const {
  std::vector<uint32_t> lengths(first + count);
  Cursor cursor = payload;
  cursor.Read(reinterpret_cast<char*>(lengths.data()), lengths.size() * sizeof(uint32_t));
  cursor.Skip((elements - lengths.size()) * sizeof(uint32_t));
  for (size_t i = 0; i < first; ++i) cursor.Skip(lengths[i]);
  std::vector<std::string> strings(count);
  for (size_t i = 0; i < count; ++i) {
    strings[i].resize(lengths[first + i]);
    cursor.Read(strings[i].data(), strings[i].size());
  }
  return strings;
}

Status Frame::Parse(const grpc::ByteBuffer& message) {
  try {
    return ParseAll(message);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

Status Frame::ParseAll(const grpc::ByteBuffer& message) {
  slices_.clear();
  tensors_.clear();
  message_.clear();
  call_id_ = kUnreadableCallId;
  size_t left = message.Length();
  if (!message.Dump(&slices_).ok() || left < kFrameHeaderBytes) {
    return Malformed("shorter than a header");
  }
  Cursor cursor(&slices_);
  FrameHeader header;
  cursor.Read(reinterpret_cast<char*>(&header), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return Malformed("it does not start with SDR1");
  }
  call_id_ = header.call_id;
  if (header.kind > static_cast<uint8_t>(Kind::kError)) return Malformed("unknown kind");
  if (header.zero != 0) return Malformed("byte 5 is not zero");
  kind_ = static_cast<Kind>(header.kind);
  code_ = header.code;
  left -= kFrameHeaderBytes;
  if (header.message_bytes > left) return Malformed("the message is cut short");
  if (header.message_bytes > 0 && kind_ != Kind::kError) return Malformed("unexpected message");
  if (header.code != 0 && kind_ == Kind::kReply) return Malformed("a reply with an error code");
  if (header.num_tensors > 0 && kind_ == Kind::kError) return Malformed("an error with tensors");
  message_.resize(header.message_bytes);
  cursor.Read(message_.data(), message_.size());
  left -= message_.size();
  if (header.num_tensors * kTensorHeaderBytes > left) return Malformed("tensors are missing");
  tensors_.reserve(header.num_tensors);
  for (size_t i = 0; i < header.num_tensors; ++i) {
    Status status = ParseTensor(&cursor, &left);
    if (!status.ok()) return status;
  }
  if (left > 0) return Malformed(std::to_string(left) + " bytes after the last tensor");
  return {};
}

Status Frame::ParseTensor(Cursor* cursor, size_t* left) {
  TensorHeader header;
  if (*left < sizeof(header)) return Malformed("a tensor is missing");
  cursor->Read(reinterpret_cast<char*>(&header), sizeof(header));
  *left -= sizeof(header);
  if (header.dtype >= kNumDTypes) return Malformed("unknown element type");
  if (header.rank > kMaxRank) return Malformed("a rank above 16");
  if (header.zero0 != 0 || header.zero1 != 0) return Malformed("padding is not zero");
  if (header.rank * sizeof(int64_t) > *left) return Malformed("dimensions are cut short");
  TensorView& tensor = tensors_.emplace_back();
  tensor.dtype = static_cast<DType>(header.dtype);
  tensor.rank = header.rank;
  cursor->Read(reinterpret_cast<char*>(tensor.dims), header.rank * sizeof(int64_t));
  *left -= header.rank * sizeof(int64_t);
  uint64_t elements = 1;
  bool empty = false;
  for (size_t i = 0; i < tensor.rank; ++i) {
    if (tensor.dims[i] < 0) return Malformed("a negative dimension");
    if (tensor.dims[i] == 0) {
      empty = true;
      continue;
    }
    const uint64_t dim = static_cast<uint64_t>(tensor.dims[i]);
    if (dim > kMaxElements / elements) return Malformed("a tensor of too many elements");
    elements *= dim;
  }
  tensor.elements = empty ? 0 : elements;
  if (header.bytes > *left) return Malformed("a payload is cut short");
  tensor.bytes = header.bytes;
  tensor.payload = *cursor;
  if (tensor.dtype == DType::kString) {
    if (tensor.elements > tensor.bytes / sizeof(uint32_t)) return Malformed("strings are missing");
  } else if (tensor.bytes != tensor.elements * ItemSize(tensor.dtype)) {
    return Malformed("a payload does not have the size of its shape");
  }
  cursor->Skip(tensor.bytes);
  *left -= tensor.bytes;
  return {};
}

Status Frame::CheckStrings() const {
  uint32_t lengths[256];
  for (const TensorView& tensor : tensors_) {
    if (tensor.dtype != DType::kString) continue;
    size_t remaining = tensor.bytes - tensor.elements * sizeof(uint32_t);
    Cursor cursor = tensor.payload;
    for (size_t left = tensor.elements; left > 0;) {
      const size_t count = std::min(left, std::size(lengths));
      cursor.Read(reinterpret_cast<char*>(lengths), count * sizeof(uint32_t));
      const uint64_t sum = std::accumulate(lengths, lengths + count, uint64_t{0});
      if (sum > remaining) return Malformed("a string is cut short");
      remaining -= sum;
      left -= count;
    }
    if (remaining > 0) return Malformed("bytes after the last string");
  }
  return {};
}

std::vector<Tensor> Frame::Copies() const {
  std::vector<Tensor> copies;
  for (const TensorView& view : tensors_) {
    Tensor& tensor = copies.emplace_back();
    tensor.dtype = view.dtype;
    tensor.dims = view.Dims();
    if (view.dtype == DType::kString) {
      tensor.strings = view.Strings(0, view.elements);
    } else {
      view.CopyTo(Allocate(&tensor, view.bytes), 0, view.bytes);
    }
  }
  return copies;
}

FrameWriter::FrameWriter(Kind kind, uint64_t call_id, uint32_t function, size_t num_tensors) {
  FrameHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.kind = static_cast<uint8_t>(kind);
  header.num_tensors = static_cast<uint16_t>(num_tensors);
  header.call_id = call_id;
  header.code = function;
  small_.reserve(256);
  Append(header);
}

void FrameWriter::AddHeader(DType dtype, const int64_t* dims, size_t rank, uint64_t bytes) {
  TensorHeader header = {};
  header.dtype = static_cast<uint8_t>(dtype);
  header.rank = static_cast<uint8_t>(rank);
  header.bytes = bytes;
  Append(header);
  small_.append(reinterpret_cast<const char*>(dims), rank * sizeof(int64_t));
}

void FrameWriter::Add(DType dtype, const int64_t* dims, size_t rank, const char* data, size_t bytes,
                      const std::shared_ptr<const void>& owner, size_t owner_bytes) {
  AddHeader(dtype, dims, rank, bytes);
  if (bytes < kBorrowBytes || bytes < owner_bytes / kBorrowFraction || !owner) {
    small_.append(data, bytes);
    return;
  }
  Flush();
  using Owner = std::shared_ptr<const void>;
  slices_.emplace_back(
      const_cast<char*>(data), bytes, [](void* owner) { delete static_cast<Owner*>(owner); },
      new Owner(owner));
}

void FrameWriter::AddStrings(const int64_t* dims, size_t rank, const std::string* strings,
                             size_t count) {
  uint64_t bytes = count * sizeof(uint32_t);
  for (size_t i = 0; i < count; ++i) bytes += strings[i].size();
  AddHeader(DType::kString, dims, rank, bytes);
  for (size_t i = 0; i < count; ++i) Append(static_cast<uint32_t>(strings[i].size()));
  for (size_t i = 0; i < count; ++i) small_ += strings[i];
}

void FrameWriter::Add(const Tensor& tensor) {
  if (tensor.dtype == DType::kString) {
    AddStrings(tensor.dims.data(), tensor.dims.size(), tensor.strings.data(),
               tensor.strings.size());
  } else {
    Add(tensor.dtype, tensor.dims.data(), tensor.dims.size(), tensor.data, tensor.bytes,
        tensor.owner, tensor.owner_bytes);
  }
}

void FrameWriter::Flush() {
  if (small_.empty()) return;
  slices_.emplace_back(small_.data(), small_.size());
  small_.clear();
}

grpc::ByteBuffer FrameWriter::Finish() {
  Flush();
  return grpc::ByteBuffer(slices_.data(), slices_.size());
}

grpc::ByteBuffer ErrorFrame(uint64_t call_id, const Status& status) {
  const std::string message = status.message.substr(0, kMaxErrorBytes);
  FrameHeader header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.kind = static_cast<uint8_t>(Kind::kError);
  header.call_id = call_id;
  header.code = static_cast<uint32_t>(status.code);
  header.message_bytes = static_cast<uint32_t>(message.size());
  std::string frame(reinterpret_cast<const char*>(&header), sizeof(header));
  frame += message;
  grpc::Slice slice(frame);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace seed_rl::transport
