/* images.js - input images of a request: the start image with its mask, the last frame of a video,
 * control images, the control video with its mask, reference images, and images that a prior varies
 * (redux). They are saved across a reload. */
import { byId, icon, iconButton, make, news } from './dom.js';
import { clearErrors } from './errors.js';
import { editMask } from './mask.js';
import { jpegOrientation } from './png.js';
import { loadImages, saveImages } from './store.js';

const mostSide = 8192;          /* of an image: a browser draws no larger ones                 */
const readable = ['image/png', 'image/jpeg', 'image/webp'];
const given = { start: undefined, mask: undefined, last: undefined, control: [],
                video: undefined, area: undefined, more: [], redux: [] };
const form = byId('form');
let model = { takes: [], images: 0, needs: [] };

export const startBlob = () => given.start;
/* Returns the image whose size the result has if the request gives none; undefined: none. */
export const shapeBlob = ({ takes }) => (takes.includes('image') && given.start) ||
  (takes.includes('control_image') && given.control[0]) || undefined;
export const maskBlob = () => given.mask;

/* ---- files ------------------------------------------------------------------------------- */

/* Returns the file itself, or a PNG of its pixels if the server cannot read or rotate it. */
async function sendable(file, bitmap) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const turned = file.type === 'image/jpeg' && jpegOrientation(bytes) !== 1;
  if (readable.includes(file.type) && !turned)
    return file;
  const copy = document.createElement('canvas');
  [copy.width, copy.height] = [bitmap.width, bitmap.height];
  copy.getContext('2d').drawImage(bitmap, 0, 0);
  return new Promise((resolve) => {
    copy.toBlob(resolve, 'image/png');
  });
}

export async function decode(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name || 'This file'} cannot be read as an image by this browser.`);
  }
  if (bitmap.width > mostSide || bitmap.height > mostSide)
    throw new Error(`The image has ${bitmap.width} x ${bitmap.height} pixels; a side may have ` +
                    `${mostSide}.`);
  return bitmap;
}

async function readImage(file) {
  return sendable(file, await decode(file));
}

/* ---- the input images -------------------------------------------------------------------- */

/* Sets the image of a slot, or the list of "more" or "control"; undefined: no image. */
async function put(place, value) {
  given[place] = value;
  saveImages(place, value);
  showImages(model);
  form.dispatchEvent(new CustomEvent('given', { detail: place }));
}

/* Returns the number of control images of a model: one for each control network. */
const mostControls = ({ control_images: n }) => n || 1;
const controlsOf = (of) => given.control.slice(0, mostControls(of));

/* Adds an image to a slot, or replaces the image in it. */
export async function giveImage(place, file) {
  const blob = ['video', 'area'].includes(place) ? file : await readImage(file);
  if (place === 'more' || place === 'redux') {
    await put(place, [...given[place], blob]);
  } else if (place === 'control') {
    await put('control', [...controlsOf(model).slice(0, mostControls(model) - 1), blob]);
  } else {
    if (place === 'start')
      await put('mask', undefined);
    await put(place, blob);
  }
  news('The image was added');
}

export async function openMask() {
  const mask = await editMask(given.start, given.mask);
  await put('mask', mask);
  byId('mask-open').focus();
}

/* Returns the files of a request by field name; without a start image there are at most control
 * images and images to vary. */
export function givenFiles(of) {
  const varied = of.takes.includes('redux_image') && given.redux.length;
  return { ...filesBeside(of), ...varied && { redux_image: given.redux } };
}

function filesBeside(of) {
  const { makes, takes, images } = of;
  const { start, mask, last, more } = given;
  const shaping = takes.includes('control_image') && given.control.length
    ? { control_image: controlsOf(of) }
    : takes.includes('control_video') && given.video
      ? { control_video: given.video, ...takes.includes('mask_image') && given.area &&
          { mask: given.area } } : {};
  if (!takes.includes('image') || !start)
    return shaping;
  if (makes === 'video')
    return { ...shaping, input_reference: start, ...takes.includes('last_image') && last &&
             { last_image: last }, ...images > 1 && { reference_images: more } };
  return { ...shaping, image: start, ...takes.includes('mask_image') && mask && { mask },
           'image[]': images > 1 ? more : [] };
}

/* Returns the first missing input of the model: [nothing, field, message]; undefined: none. */
export function lackingImages(name) {
  const wanted = { image: [given.start, 'image', `${name} needs an image to start from.`],
                   mask_image: [given.mask, 'mask', `${name} needs a mask: paint the area to ` +
                                'regenerate.'],
                   last_image: [given.last, 'last_image', `${name} needs the image that the ` +
                                'video ends with.'],
                   control_image: [given.control.length >= mostControls(model),
                                   'control_image', mostControls(model) > 1
                     ? `${name} needs ${mostControls(model)} control images, one for each ` +
                       'control network.'
                     : `${name} needs a control image, such as edges or depth.`] };
  return model.needs.map((word) => wanted[word]).find((w) => w && !w[0]);
}

/* ---- display ----------------------------------------------------------------------------- */

const urls = new WeakMap();     /* of blobs                                                    */

function urlOf(blob) {
  if (!urls.has(blob))
    urls.set(blob, URL.createObjectURL(blob));
  return urls.get(blob);
}

function thumbnail(blob, what, remove) {
  const shown = blob.type.startsWith('video/')
    ? make('video', { src: urlOf(blob), muted: true, ariaLabel: what })
    : make('img', { src: urlOf(blob), alt: what });
  return make('div', { className: 'thumbnail' }, shown,
              iconButton('close', `Remove ${what}`, remove));
}

/* Draws the white parts of the mask over the image in the mask's colour. */
function maskOver(blob) {
  const canvas = make('canvas', { className: 'mask-over' });
  createImageBitmap(blob).then((bitmap) => {
    [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
    const pen = canvas.getContext('2d');
    pen.drawImage(bitmap, 0, 0);
    const pixels = pen.getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < pixels.data.length; i += 4)
      pixels.data.set([214, 32, 106, pixels.data[i] ? 150 : 0], i);
    pen.putImageData(pixels, 0, 0);
  });
  return canvas;
}

function showSlot(id, thumbnails) {
  const slot = byId(id);
  slot.querySelector('.given').replaceChildren(...thumbnails);
  slot.querySelector('.given').hidden = !thumbnails.length;
  slot.classList.toggle('filled', thumbnails.length > 0);
  const input = slot.querySelector('input');
  input.hidden = thumbnails.length > 0 && !input.multiple;
  slot.classList.toggle('full', input.hidden);
}

function removeFrom(place, input, value) {
  return async () => {
    await put(place, value?.());
    if (place === 'start')
      await put('mask', undefined);
    byId(input).focus();
  };
}

export function showImages(of) {
  model = of;
  const { start, mask, last, video, area, more } = given;
  const controls = controlsOf(model);
  const shows = (word) => model.takes.includes(word);
  byId('start').hidden = !shows('image');
  byId('last-slot').hidden = !shows('last_image');
  byId('control-slot').hidden = !shows('control_image');
  byId('redux-slot').hidden = !shows('redux_image');
  byId('prompt').required = !shows('redux_image') || !given.redux.length;
  byId('video-slot').hidden = !shows('control_video');
  byId('area-slot').hidden = !shows('control_video') || !shows('mask_image') || !video;
  byId('more-slot').hidden = !(model.images > 1);
  byId('mask-row').hidden = !shows('mask_image') || !start || model.makes === 'video';
  byId('mask-open').replaceChildren(icon('brush'), mask ? 'Change the mask'
    : 'Paint the area to regenerate');
  byId('strength-row').hidden = !shows('strength') || !start;
  byId('control-mode-field').hidden = !shows('control_image') || !controls.length;
  byId('control-row').hidden = byId('control-mode-field').hidden &&
    !(shows('control_video') && video);
  const first = start && thumbnail(start, 'the image to start from',
                                   removeFrom('start', 'start-file'));
  if (first && mask && !byId('mask-row').hidden)
    first.append(maskOver(mask));
  showSlot('start-slot', first ? [first] : []);
  showSlot('last-slot', last ? [thumbnail(last, 'the last image', removeFrom('last', 'last-file'))]
    : []);
  byId('control-file').multiple = controls.length < mostControls(model);
  showSlot('control-slot', controls.map((blob, i) => thumbnail(blob, mostControls(model) > 1
    ? `control image ${i + 1}` : 'the control image', removeFrom('control', 'control-file',
    () => given.control.filter((b) => b !== blob)))));
  showSlot('redux-slot', given.redux.map((blob, i) => thumbnail(blob, `image ${i + 1} to vary`,
    removeFrom('redux', 'redux-file', () => given.redux.filter((b) => b !== blob)))));
  showSlot('video-slot', video ? [thumbnail(video, 'the control video',
                                            removeFrom('video', 'video-file'))] : []);
  showSlot('area-slot', area ? [thumbnail(area, 'the mask of the control video',
                                          removeFrom('area', 'area-file'))] : []);
  showSlot('more-slot', more.map((blob, i) => thumbnail(blob, `image ${i + 2}`, removeFrom('more',
    'more-files', () => given.more.filter((b) => b !== blob)))));
}

/* Returns the possible targets of a dropped file: [slot, label]. */
export function places() {
  const found = [];
  if (model.takes.includes('image'))
    found.push(['start', 'Start from it']);
  if (model.images > 1)
    found.push(['more', 'Add it to the images']);
  if (model.takes.includes('last_image'))
    found.push(['last', 'End with it']);
  if (model.takes.includes('control_image'))
    found.push(['control', 'Follow it']);
  if (model.takes.includes('redux_image'))
    found.push(['redux', 'Vary it']);
  return found;
}

/* fail: shows an error that concerns no field. */
export async function beginImages(fail) {
  for (const [id, place] of [['start-file', 'start'], ['last-file', 'last'],
                             ['control-file', 'control'], ['video-file', 'video'],
                             ['redux-file', 'redux'],
                             ['area-file', 'area'], ['more-files', 'more']])
    byId(id).addEventListener('change', async (event) => {
      clearErrors(event.target);
      for (const file of [...event.target.files])
        await giveImage(place, file).catch(fail);
      event.target.value = '';
    });
  byId('mask-open').addEventListener('click', openMask);
  for (const place of Object.keys(given))
    given[place] = await loadImages(place) ?? given[place];
  given.control = [given.control].flat();
  showImages(model);
  form.dispatchEvent(new CustomEvent('given', { detail: 'kept' }));
}
