/* gallery.js - results of this session, and what can be done with each */

const byId = (id) => document.getElementById(id);

/* An element with properties and children; texts are never read as HTML. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const labels = {
  prompt: 'Prompt', negative_prompt: 'Negative prompt', model: 'Model', width: 'Width',
  height: 'Height', num_inference_steps: 'Steps', guidance_scale: 'Guidance',
  true_cfg_scale: 'True guidance', seed: 'Seed', scheduler: 'Sampler', strength: 'Strength',
  num_frames: 'Frames', fps: 'Frames per second',
};

function parameterList(parameters) {
  const list = make('dl');
  for (const [name, label] of Object.entries(labels))
    if (parameters[name])
      list.append(make('dt', { textContent: label }),
                  make('dd', { textContent: parameters[name] }));
  for (const lora of parameters.loras || [])
    list.append(make('dt', { textContent: 'LoRA' }),
                make('dd', { textContent: `${lora.name}: ${lora.scale}` }));
  return list;
}

function view(result, number) {
  const alt = `result ${number}: ${result.parameters.prompt || 'no prompt'}`;
  if (result.blob.type.startsWith('video/'))
    return make('video', { src: result.url, controls: true, loop: true, ariaLabel: alt });
  return make('a', { href: result.url, target: '_blank', rel: 'noopener',
                     ariaLabel: `Open ${alt}` }, make('img', { src: result.url, alt }));
}

const extensions = { 'image/png': 'png', 'image/jpeg': 'jpg', 'image/webp': 'webp',
                     'image/gif': 'gif', 'video/mp4': 'mp4', 'video/webm': 'webm',
                     'video/quicktime': 'mov', 'video/x-matroska': 'mkv' };
let count = 0;

/* Screen readers hear of which result it is. */
function makeButton(text, number, action) {
  const button = make('button', { type: 'button', textContent: text });
  button.append(make('span', { className: 'unseen', textContent: `, result ${number}` }));
  button.addEventListener('click', action);
  return button;
}

/* A video that the server has, by its first frame: `load` reads it and adds it as a result. */
export function addKept({ thumbnail, prompt, load }) {
  const number = ++count;
  const url = URL.createObjectURL(thumbnail);
  const item = make('li', { id: `result-${number}` });
  let loading = false;          /* a disabled button would lose the focus                     */
  const show = makeButton('Show the video', number, async () => {
    if (loading)
      return;
    loading = true;
    if (await load()) {
      const focused = item.contains(document.activeElement);
      item.remove();
      URL.revokeObjectURL(url);
      if (focused)
        byId('results').focus();
    }
    loading = false;
  });
  item.append(make('img', { src: url, alt: `First frame of result ${number}: ${prompt}` }),
              make('p', { className: 'title', textContent: prompt }),
              make('p', { className: 'actions' }, show));
  byId('gallery').prepend(item);
  byId('results-none').hidden = true;
}

/* Puts a result before the others. {blob, parameters, again, use, start}: the functions do what
 * their button says; `start` may be missing. */
export function addResult(result) {
  const number = ++count;
  const seed = result.parameters.seed || '';
  result.url = URL.createObjectURL(result.blob);
  const item = make('li', { id: `result-${number}` });
  const button = (text, action) => makeButton(text, number, action);
  const save = make('a', { className: 'button', href: result.url, textContent: 'Save',
                           download: `xdit-${seed || number}-${number}.` +
                                     `${extensions[result.blob.type] || 'bin'}` });
  save.append(make('span', { className: 'unseen', textContent: ` result ${number}` }));
  const actions = make('p', { className: 'actions' }, save);
  if (seed)
    actions.append(button('Again with this seed', result.again));
  actions.append(button('Use these parameters', result.use));
  if (result.start && result.blob.type.startsWith('image/'))
    actions.append(button('Start from this image', result.start));
  actions.append(button('Remove', () => removeResult(item, result)));
  item.append(view(result, number), make('p', { className: 'title', textContent:
    result.parameters.prompt || '' }), make('details', {}, make('summary', { textContent:
    seed ? `Seed ${seed}, all parameters` : 'Parameters' }), parameterList(result.parameters)),
    actions);
  byId('gallery').prepend(item);
  byId('results-none').hidden = true;
}

function removeResult(item, result) {
  item.remove();
  URL.revokeObjectURL(result.url);
  byId('results-none').hidden = byId('gallery').childElementCount > 0;
  byId('results').focus();
}
