// Reads the files of VisualDL and TensorBoard: records behind their lengths, in each a message of protobuf.
const MOST = 4000, PIECE = 4 << 20;

function fields(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), list = [];
  let at = 0;
  const varint = () => {
    let value = 0, scale = 1, byte;
    do { byte = view.getUint8(at++); value += (byte & 127) * scale; scale *= 128; } while (byte > 127);
    return value;
  };
  while (at < bytes.length) {
    const key = varint(), kind = key & 7, field = key >>> 3;
    if (kind === 0) list.push([field, varint()]);
    else if (kind === 1) { list.push([field, view.getFloat64(at, true)]); at += 8; }
    else if (kind === 5) { list.push([field, view.getFloat32(at, true)]); at += 4; }
    else if (kind === 2) { const size = varint(); list.push([field, bytes.subarray(at, at + size)]); at += size; }
    else break;
  }
  return list;
}

// Adds a piece's scalars to curves, which are thinned as they grow; returns how many bytes are done with, a record beyond the piece's end
// among them.
function scalars(buffer, tensorboard, series) {
  const bytes = new Uint8Array(buffer), view = new DataView(buffer);
  const text = (part) => new TextDecoder().decode(part), sums = tensorboard ? 4 : 0;
  const add = (tag, step, value) => {
    if (!tag || typeof value !== "number") return;
    const curve = (series[tag] ??= {seen: 0, every: 1, points: []});
    curve.last = {step: step || 0, value};
    if (curve.seen++ % curve.every === 0) curve.points.push(curve.last);
    if (curve.points.length > MOST) { curve.every *= 2; curve.points = curve.points.filter((_, place) => place % 2 === 0); }
  };
  let at = 0;
  while (at + 8 <= bytes.length) {
    const size = Number(view.getBigUint64(at, true)), begin = at + 8 + sums;
    if (begin + size > bytes.length) return at || bytes.length < PIECE ? at : begin + size + sums;
    try {
      const record = fields(bytes.subarray(begin, begin + size));
      if (tensorboard) {
        const event = Object.fromEntries(record.filter(([, value]) => typeof value === "number"));
        for (const [, summary] of record.filter(([field, value]) => field === 5 && typeof value !== "number"))
          for (const [, bytesOf] of fields(summary)) { const value = Object.fromEntries(fields(bytesOf)); add(value[1] && text(value[1]), event[2], value[2]); }
      } else for (const [field, bytesOf] of record)
        if (field === 1) { const value = Object.fromEntries(fields(bytesOf)); add(value[2] && text(value[2]), value[1], value[4]); }
    } catch { break; }
    at = begin + size + sums;
  }
  return at;
}

// By event file: how far it was read, how long it was then, its curves. It grows at its end; a piece of it is read at a time.
const files = {};
export async function curves({name, bytes}) {
  if (!files[name] || bytes < files[name].at) files[name] = {at: 0, size: -1, series: {}};
  const file = files[name];
  if (file.size === bytes) return file.series;
  const answer = await fetch(`events?path=${encodeURIComponent(name)}&offset=${file.at}`);
  if (!answer.ok) return file.series;
  const more = scalars(await answer.arrayBuffer(), name.includes("tfevents"), file.series);
  file.at += more;
  file.size = more && file.at < bytes ? -1 : bytes;
  return file.series;
}
