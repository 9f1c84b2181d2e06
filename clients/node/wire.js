// The frames of docs/wire_format.md: encoding of calls, decoding of replies.
// @ts-check
const MAGIC = 0x31524453; // "SDR1", little-endian.
const PROTOCOL_VERSION = 1;
const HEADER = 24, TENSOR_HEADER = 16;
const KIND = { reply: 1, error: 2 }; // 0: a call.

/**
 * @typedef {Uint8Array | Int8Array | Uint16Array | Int16Array | Uint32Array | Int32Array
 *   | BigUint64Array | BigInt64Array | Float32Array | Float64Array} Elements
 * @typedef {{dtype: string, shape: number[], data: Elements}} Tensor `data` in C order.
 * @typedef {{kind: number, callId: bigint, code: number, tensors: Tensor[], message: string}} Frame
 */

// By wire code. Not here: float16 and bfloat16 (no such arrays in JavaScript), and strings.
/** @type {[string, any][]} */
const DTYPES = [
  ["bool", Uint8Array], ["uint8", Uint8Array], ["int8", Int8Array], ["uint16", Uint16Array],
  ["int16", Int16Array], ["uint32", Uint32Array], ["int32", Int32Array], ["uint64", BigUint64Array],
  ["int64", BigInt64Array], ["float16", null], ["bfloat16", null], ["float32", Float32Array],
  ["float64", Float64Array],
];

/** Bytes that violate the wire format. */
class WireError extends Error {}

/** The typed array for a dtype of the wire, such as "float32"; bools are a Uint8Array. */
function arrayType(/** @type {string} */ dtype) {
  const found = DTYPES.find(([name]) => name === dtype);
  if (!found?.[1]) throw new WireError(`Tensors of type ${dtype} are not supported here.`);
  return found[1];
}

/**
 * Encodes a call.
 * @param {bigint} callId @param {number} index of the function @param {Tensor[]} tensors
 * @returns {Buffer}
 */
function encodeCall(callId, index, tensors) {
  const size = tensors.reduce(
    (sum, t) => sum + TENSOR_HEADER + 8 * t.shape.length + t.data.byteLength, HEADER);
  const frame = Buffer.alloc(size);
  frame.writeUInt32LE(MAGIC, 0);
  frame.writeUInt16LE(tensors.length, 6);
  frame.writeBigUInt64LE(callId, 8);
  frame.writeUInt32LE(index, 16);
  let at = HEADER;
  for (const { dtype, shape, data } of tensors) {
    frame[at] = DTYPES.findIndex(([name]) => name === dtype);
    frame[at + 1] = shape.length;
    frame.writeBigUInt64LE(BigInt(data.byteLength), at + 8);
    at += TENSOR_HEADER;
    for (const dimension of shape) at = frame.writeBigInt64LE(BigInt(dimension), at);
    frame.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    at += data.byteLength;
  }
  return frame;
}

/**
 * Decodes a reply or an error, which must fill the message.
 * @param {Buffer} message @returns {Frame}
 */
function decode(message) {
  if (message.length < HEADER || message.readUInt32LE(0) !== MAGIC || message[5] !== 0) {
    throw new WireError("not a frame");
  }
  const kind = message[4], count = message.readUInt16LE(6);
  const size = message.readUInt32LE(20), code = message.readUInt32LE(16);
  let at = HEADER + size;
  const fits = kind === KIND.reply ? code === 0 : kind === KIND.error;
  if (!fits || at > message.length) throw new WireError("malformed header");
  const text = message.toString("utf8", HEADER, at);
  const tensors = [];
  for (let i = 0; i < count; ++i) {
    const rank = message[at + 1];
    const begin = at + TENSOR_HEADER + 8 * rank;
    if (rank > 16 || begin > message.length) throw new WireError("malformed tensor");
    const [dtype, type] = DTYPES[message[at]] ?? ["unknown", null];
    if (!type) throw new WireError(`Tensors of type ${dtype} are not supported here.`);
    const bytes = Number(message.readBigUInt64LE(at + 8));
    const shape = Array.from({ length: rank },
      (_, d) => Number(message.readBigInt64LE(at + TENSOR_HEADER + 8 * d)));
    const elements = shape.reduce((product, dimension) => product * dimension, 1);
    at = begin + bytes;
    if (at > message.length || elements * type.BYTES_PER_ELEMENT !== bytes) {
      throw new WireError("malformed tensor");
    }
    // A copy: elements may be unaligned in the message.
    const copy = Uint8Array.prototype.slice.call(message, begin, at);
    tensors.push({ dtype, shape, data: new type(copy.buffer, copy.byteOffset, elements) });
  }
  if (at !== message.length) throw new WireError("extra bytes");
  return { kind, callId: message.readBigUInt64LE(8), code, tensors, message: text };
}

export { DTYPES, KIND, PROTOCOL_VERSION, WireError, arrayType, decode, encodeCall };
