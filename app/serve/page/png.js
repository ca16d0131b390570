/* png.js - reads parameters from PNG files, and writes masks as PNG files */
import { readJson } from './api.js';

const signature = [137, 80, 78, 71, 13, 10, 26, 10];
const latin1 = new TextDecoder('latin1');
const utf8 = new TextDecoder();

export function isPng(bytes) {
  return signature.every((b, i) => bytes[i] === b);
}

/* Yields the complete chunks of a file as [type, bytes]. */
function* chunks(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 8; at + 12 <= bytes.length;) {
    const size = view.getUint32(at);
    if (at + 12 + size > bytes.length)
      return;
    yield [latin1.decode(bytes.subarray(at + 4, at + 8)), bytes.subarray(at + 8, at + 8 + size)];
    at += 12 + size;
  }
}

async function throughStream(bytes, stream) {
  const out = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(out).arrayBuffer());
}

const mostText = 1 << 20;       /* characters of a text: more is no parameters */

async function inflate(bytes) {
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'))
    .getReader();
  const parts = [];
  for (let n = 0; n < mostText;) {
    const { value, done } = await reader.read();
    if (done)
      break;
    parts.push(value);
    n += value.length;
  }
  reader.cancel().catch(() => {});
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/* Decodes a tEXt, zTXt or iTXt chunk to [keyword, text]. */
async function readText(type, data) {
  const end = data.indexOf(0);
  const name = latin1.decode(data.subarray(0, end));
  if (type === 'tEXt')
    return [name, latin1.decode(data.subarray(end + 1))];
  if (type === 'zTXt')
    return [name, latin1.decode(await inflate(data.subarray(end + 2)))];
  const packed = data[end + 1] === 1;
  let at = data.indexOf(0, end + 3);            /* behind the language */
  at = data.indexOf(0, at + 1) + 1;             /* behind the translated keyword */
  return [name, utf8.decode(packed ? await inflate(data.subarray(at)) : data.subarray(at))];
}

/* Returns all texts of a file by keyword. */
export async function pngTexts(bytes) {
  const texts = {};
  for (const [type, data] of isPng(bytes) ? chunks(bytes) : []) {
    if (!['tEXt', 'zTXt', 'iTXt'].includes(type) || data.indexOf(0) < 0)
      continue;
    try {
      const [name, text] = await readText(type, data);
      texts[name] = text;
    } catch {
      /* a damaged text; others may be intact */
    }
  }
  return texts;
}

/* ---- parameters -------------------------------------------------------------------------- */

const baseName = (path) => path.replace(/\/+$/, '').replace(/^.*\//, '');

/* Returns the name of a directory; in the Hugging Face cache, org/name. */
function modelName(path) {
  const hub = /models--([^/]+)--([^/]+)\/snapshots\//.exec(path);
  return hub ? `${hub[1]}/${hub[2]}` : baseName(path);
}

/* Converts xdit's JSON parameters to fields of a request. */
export function ownParameters(json) {
  const found = {};
  const names = {
    prompt: 'prompt', negative_prompt: 'negative_prompt', seed: 'seed',
    steps: 'num_inference_steps', guidance_scale: 'guidance_scale',
    true_cfg_scale: 'true_cfg_scale', width: 'width', height: 'height', strength: 'strength',
    num_frames: 'num_frames', fps: 'fps', sampler: 'scheduler', layers: 'layers',
  };
  for (const [from, to] of Object.entries(names))
    if (json[from] !== undefined)
      found[to] = String(json[from]);
  if (json.model)
    found.model = modelName(String(json.model));
  found.loras = [...json.loras || [], ...json.loras_2 || []].map((l) => ({
    name: baseName(String(l.path)).replace(/\.safetensors$/, ''), scale: String(l.scale) }));
  return found;
}

const webuiNames = {
  Steps: 'num_inference_steps', Sampler: 'scheduler', 'CFG scale': 'guidance_scale', Seed: 'seed',
  'Denoising strength': 'strength', 'Distilled CFG Scale': 'guidance_scale', Model: 'model',
};

/* Parses "name:0.8, name:1". */
function readLoras(text) {
  return text.split(',').map((part) => /^\s*(.+?):\s*(-?[\d.]+)\s*$/.exec(part)).filter(Boolean)
    .map((m) => ({ name: m[1], scale: m[2] }));
}

/* Parses the text of stable-diffusion-webui: prompt, "Negative prompt: ...", and a line of settings
 * whose values may be quoted. */
export function webuiParameters(text) {
  const lines = text.trimEnd().split('\n');
  const settings = lines.pop();
  if (!/^Steps: \d/.test(settings))
    return null;
  const negative = lines.findIndex((line) => line.startsWith('Negative prompt: '));
  const found = { prompt: lines.slice(0, negative < 0 ? lines.length : negative).join('\n'),
                  negative_prompt: '', loras: [] };
  if (negative >= 0)
    found.negative_prompt = lines.slice(negative).join('\n').slice('Negative prompt: '.length);
  found.prompt = found.prompt.replace(/<lora:([^:>]+):([\d.]+)>/g, (all, name, scale) => {
    found.loras.push({ name, scale });
    return '';
  }).trim();
  for (const m of settings.matchAll(/\s*([\w ]+):\s*("(?:\\.|[^"\\])*"|[^,]*)(?:,|$)/g)) {
    const value = m[2].startsWith('"') ? m[2].slice(1, -1).replace(/\\(.)/g, '$1') : m[2].trim();
    const size = m[1] === 'Size' && /^(\d+)x(\d+)$/.exec(value);
    if (size)
      [found.width, found.height] = [size[1], size[2]];
    else if (m[1] === 'LoRA')
      found.loras.push(...readLoras(value));
    else if (webuiNames[m[1]])
      found[webuiNames[m[1]]] = value;
  }
  return found;
}

/* Returns the parameters in a file as fields of a request; null: none. */
export async function parametersOf(bytes) {
  const texts = await pngTexts(bytes);
  try {
    if (texts.xdit)
      return ownParameters(readJson(texts.xdit));
  } catch {
    /* not xdit's JSON: try the other text */
  }
  return texts.parameters ? webuiParameters(texts.parameters) : null;
}

/* ---- a grey image as a PNG file ---------------------------------------------------------- */

function crcOf(bytes) {
  let crc = 0xffffffff;
  for (const b of bytes) {
    crc ^= b;
    for (let k = 0; k < 8; k++)
      crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}

function chunkOf(type, data) {
  const chunk = new Uint8Array(12 + data.length);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, data.length);
  chunk.set([...type].map((c) => c.charCodeAt(0)), 4);
  chunk.set(data, 8);
  view.setUint32(8 + data.length, crcOf(chunk.subarray(4, 8 + data.length)));
  return chunk;
}

/* Writes a mask with one grey channel, so that no alpha channel can be mistaken for the mask. */
export async function greyPng(grey, width, height) {
  const rows = new Uint8Array((width + 1) * height);
  for (let y = 0; y < height; y++)
    rows.set(grey.subarray(y * width, (y + 1) * width), y * (width + 1) + 1);
  const head = new Uint8Array(13);
  new DataView(head.buffer).setUint32(0, width);
  new DataView(head.buffer).setUint32(4, height);
  head[8] = 8;                  /* bits; the rest, 0: grey, not interlaced */
  return new Blob([new Uint8Array(signature), chunkOf('IHDR', head),
                   chunkOf('IDAT', await throughStream(rows, new CompressionStream('deflate'))),
                   chunkOf('IEND', new Uint8Array(0))], { type: 'image/png' });
}

/* ---- orientation of photographs ---------------------------------------------------------- */

/* Returns the Exif orientation of a JPEG file, 1 to 8; 1 if it has none. */
export function jpegOrientation(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  try {
    for (let at = 2; view.getUint8(at) === 0xff && view.getUint8(at + 1) !== 0xda;
      at += 2 + view.getUint16(at + 2))
      if (view.getUint8(at + 1) === 0xe1 &&
          latin1.decode(bytes.subarray(at + 4, at + 8)) === 'Exif')
        return tiffOrientation(new DataView(view.buffer, view.byteOffset + at + 10));
  } catch {
    /* truncated */
  }
  return 1;
}

function tiffOrientation(view) {
  const little = view.getUint16(0) === 0x4949;
  const first = view.getUint32(4, little);
  for (let i = 0; i < view.getUint16(first, little); i++)
    if (view.getUint16(first + 2 + 12 * i, little) === 0x0112)
      return view.getUint16(first + 10 + 12 * i, little);
  return 1;
}
