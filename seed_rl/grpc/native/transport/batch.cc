#include "seed_rl/grpc/native/transport/batch.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

namespace seed_rl::transport {
namespace {

size_t Product(const int64_t* dims, size_t rank) {
  size_t product = 1;
  for (size_t i = 0; i < rank; ++i) product *= static_cast<size_t>(dims[i]);
  return product;
}

size_t RowElements(const Tensor& tensor) {
  return Product(tensor.dims.data() + 1, tensor.dims.size() - 1);
}

}  // namespace

// Collects the results of a call whose rows are in several batches.
class Gather {
 public:
  explicit Gather(int64_t rows) : rows_(rows), rows_left_(rows) {}

  // Adds the outcome of a part. Returns whether it was the last one; then no thread uses this
  // object any more.
  bool Add(const Part& part, const Status& status, const std::vector<Tensor>& results) {
    std::lock_guard<std::mutex> lock(mu_);
    try {
      if (status_.ok()) status_ = status;
      if (status_.ok() && results_.empty()) Prepare(results);
      if (status_.ok()) status_ = Copy(part, results);
    } catch (const std::bad_alloc&) {
      status_ = OutOfMemory();
    }
    rows_left_ -= part.rows;
    return rows_left_ == 0;
  }

  const Status& status() const { return status_; }
  const std::vector<Tensor>& results() const { return results_; }

 private:
  void Prepare(const std::vector<Tensor>& like);
  Status Copy(const Part& part, const std::vector<Tensor>& from);

  const int64_t rows_;
  std::mutex mu_;
  int64_t rows_left_;            // Guarded by mu_.
  Status status_;                // The first error. Guarded by mu_.
  std::vector<Tensor> results_;  // Guarded by mu_.
  std::vector<char*> memory_;    // Of the results. Guarded by mu_.
};

void Gather::Prepare(const std::vector<Tensor>& like) {
  for (const Tensor& tensor : like) {
    Tensor& result = results_.emplace_back();
    result.dtype = tensor.dtype;
    result.dims = tensor.dims;
    result.dims[0] = rows_;
    const size_t elements = Product(result.dims.data(), result.dims.size());
    if (result.dtype == DType::kString) {
      result.strings.resize(elements);
      memory_.push_back(nullptr);
    } else {
      memory_.push_back(Allocate(&result, elements * ItemSize(result.dtype)));
    }
  }
}

Status Gather::Copy(const Part& part, const std::vector<Tensor>& from) {
  for (size_t i = 0; i < from.size(); ++i) {
    const Tensor& tensor = from[i];
    if (tensor.dims.size() != results_[i].dims.size() ||
        !std::equal(tensor.dims.begin() + 1, tensor.dims.end(), results_[i].dims.begin() + 1)) {
      return {Code::kInvalidArgument, "Output must have the same shape in every batch"};
    }
    const size_t elements = RowElements(tensor);
    if (tensor.dtype == DType::kString) {
      const auto first = tensor.strings.begin() + part.first * elements;
      std::copy(first, first + part.rows * elements,
                results_[i].strings.begin() + part.first_in_call * elements);
    } else {
      const size_t row_bytes = elements * ItemSize(tensor.dtype);
      std::memcpy(memory_[i] + part.first_in_call * row_bytes, tensor.data + part.first * row_bytes,
                  part.rows * row_bytes);
    }
  }
  return {};
}

std::shared_ptr<Gather> NewGather(int64_t rows) { return std::make_shared<Gather>(rows); }

// --- Replies.

std::optional<Status> Part::Reply(const std::vector<Tensor>& results, int64_t first,
                                  bool batched) const {
  if (gather) {
    if (!gather->Add(*this, {}, results)) return std::nullopt;
    if (!gather->status().ok()) {
      call.Fail(gather->status());
      return gather->status();
    }
    const Part whole = {call, 0, call.rows, 0, nullptr};
    return whole.Reply(gather->results(), 0, batched);
  }
  grpc::ByteBuffer frame;
  Status status;
  try {
    frame = ReplyFrame(results, first, batched);
  } catch (const std::bad_alloc&) {
    status = OutOfMemory();
    frame = ErrorFrame(call.id, status);
  }
  call.caller->Send(std::move(frame), call.bytes);
  return status;
}

grpc::ByteBuffer Part::ReplyFrame(const std::vector<Tensor>& results, int64_t first,
                                  bool batched) const {
  FrameWriter writer(Kind::kReply, call.id, 0, results.size());
  for (const Tensor& result : results) {
    if (!batched) {
      writer.Add(result);
      continue;
    }
    const size_t skip = call.leading ? 0 : 1;
    const size_t rank = result.dims.size() - skip;
    int64_t dims[kMaxRank];
    std::copy(result.dims.begin() + skip, result.dims.end(), dims);
    if (call.leading) dims[0] = rows;
    const size_t elements = RowElements(result);
    if (result.dtype == DType::kString) {
      writer.AddStrings(dims, rank, result.strings.data() + first * elements, rows * elements);
    } else {
      const size_t row_bytes = elements * ItemSize(result.dtype);
      writer.Add(result.dtype, dims, rank, result.data + first * row_bytes, rows * row_bytes,
                 result.owner, std::max(result.bytes, result.owner_bytes));
    }
  }
  return writer.Finish();
}

bool Part::Fail(const Status& status) const {
  if (gather && !gather->Add(*this, status, {})) return false;
  call.Fail(gather ? gather->status() : status);
  return true;
}

// --- Arguments.

void Batch::Copy(const Frame& frame, const Part& part) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const TensorView& view = frame.tensors()[i];
    if (view.dtype == DType::kString) {
      const size_t elements = view.elements / part.call.rows;
      std::vector<std::string> strings =
          view.Strings(part.first_in_call * elements, part.rows * elements);
      std::move(strings.begin(), strings.end(),
                arguments[i].strings.begin() + part.first * elements);
      continue;
    }
    const size_t row_bytes = view.bytes / part.call.rows;
    view.CopyTo(memory[i] + part.first * row_bytes, part.first_in_call * row_bytes,
                part.rows * row_bytes);
  }
}

std::vector<Tensor> Batch::Rows(int64_t first_row, int64_t count) const {
  std::vector<Tensor> copies;
  for (const Tensor& tensor : arguments) {
    Tensor& copy = copies.emplace_back();
    copy.dtype = tensor.dtype;
    copy.dims = tensor.dims;
    copy.dims[0] = count;
    const size_t elements = RowElements(tensor);
    if (tensor.dtype == DType::kString) {
      const auto first = tensor.strings.begin() + first_row * elements;
      copy.strings.assign(first, first + count * elements);
    } else {
      const size_t row_bytes = elements * ItemSize(tensor.dtype);
      char* const data = Allocate(&copy, count * row_bytes);
      std::memcpy(data, tensor.data + first_row * row_bytes, copy.bytes);
    }
  }
  return copies;
}

BatchFactory::BatchFactory(const Signature* signature, size_t max_free) : signature_(signature) {
  if (!signature_->batched()) return;
  for (size_t i = 0; i < signature_->arguments().size(); ++i) {
    const size_t bytes = signature_->row_bytes(i) * signature_->capacity();
    pools_.push_back(signature_->arguments()[i].dtype == DType::kString
                         ? nullptr
                         : std::make_unique<BufferPool>(bytes, max_free));
  }
}

std::shared_ptr<Batch> BatchFactory::Empty() const {
  auto batch = std::make_shared<Batch>();
  batch->arguments.resize(pools_.size());
  batch->memory.resize(pools_.size(), nullptr);
  for (size_t i = 0; i < pools_.size(); ++i) {
    Tensor& tensor = batch->arguments[i];
    tensor.dtype = signature_->arguments()[i].dtype;
    tensor.dims = signature_->arguments()[i].dims;
    if (tensor.dtype == DType::kString) {
      tensor.strings.resize(signature_->row_elements(i) * signature_->capacity());
    } else {
      std::shared_ptr<char> memory = pools_[i]->Acquire();
      batch->memory[i] = memory.get();
      tensor.data = memory.get();
      tensor.owner = std::move(memory);
      tensor.owner_bytes = signature_->row_bytes(i) * signature_->capacity();
    }
  }
  return batch;
}

std::shared_ptr<Batch> BatchFactory::Single(const Call& call, const Frame& frame) {
  auto batch = std::make_shared<Batch>();
  batch->arguments = frame.Copies();
  batch->rows = 1;
  batch->parts.push_back({call, 0, 1, 0, nullptr});
  return batch;
}

void BatchFactory::Seal(Batch* batch) const {
  for (size_t i = 0; i < pools_.size(); ++i) {
    Tensor& tensor = batch->arguments[i];
    tensor.dims[0] = batch->rows;
    tensor.bytes = signature_->row_bytes(i) * batch->rows;
    if (tensor.dtype == DType::kString) {
      tensor.strings.resize(signature_->row_elements(i) * batch->rows);
    }
  }
}

}  // namespace seed_rl::transport
