// The keyboard: letters that act on the page. Off when somebody switched them off, never while
// typing, never with a modifier, and never behind an open dialog.

const GO_WITHIN = 1500;
let goUntil = 0;

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches('input:not([type=checkbox]):not([type=radio]):not([type=button]):not([type=submit]), textarea, select'));
}

const rows = () => /** @type {HTMLElement[]} */ ([...document.querySelectorAll('[data-row]')]).filter((row) => row.offsetParent !== null);
const current = () => document.activeElement?.closest('[data-row]') ?? document.querySelector('[data-row].at');

/** @param {number} step */
function move(step) {
  const all = rows();
  if (!all.length) return;
  const was = current();
  const at = was instanceof HTMLElement ? all.indexOf(was) : -1;
  const next = all[at === -1 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
  document.querySelectorAll('[data-row].at').forEach((row) => row.classList.remove('at'));
  next.classList.add('at');
  next.querySelector('a')?.focus({ preventScroll: true });
  next.scrollIntoView({ block: 'nearest' });
}

/** Clicks what a key is for: in the row that is chosen, otherwise on the page. @param {string} what */
function press(what) {
  const target = current()?.querySelector(what) ?? document.querySelector(what);
  if (target instanceof HTMLElement) target.click();
}

/** @type {Record<string, () => void>} */
const ACTIONS = {
  '/': () => {
    const field = document.querySelector('main input[type=search]');
    if (field instanceof HTMLInputElement) { field.focus(); field.select(); }
  },
  j: () => move(1),
  k: () => move(-1),
  x: () => { const box = current()?.querySelector('input[type=checkbox]'); if (box instanceof HTMLElement) box.click(); },
  r: () => press('[data-key-replay]'),
  c: () => press('[data-key-curl]'),
  l: () => press('[data-go="l"]'),
  g: () => { goUntil = Date.now() + GO_WITHIN; },
  '?': () => { const help = document.getElementById('keys-help'); if (help instanceof HTMLDialogElement) help.showModal(); },
  Enter: () => { const link = current()?.querySelector('a'); if (link instanceof HTMLElement) link.click(); },
};

document.addEventListener('keydown', (event) => {
  if (document.documentElement.dataset.keys === 'off' || event.defaultPrevented) return;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === 'Escape') {
    goUntil = 0;
    if (isTyping(event.target) && !document.querySelector('dialog[open]')) /** @type {HTMLElement} */ (event.target).blur();
    return;
  }
  if (isTyping(event.target) || document.querySelector('dialog[open]')) return;
  if (Date.now() < goUntil) {
    goUntil = 0;
    const link = [...document.querySelectorAll('[data-go]')].find((entry) => entry.getAttribute('data-go') === event.key);
    if (link instanceof HTMLElement) { event.preventDefault(); link.click(); }
    return;
  }
  // What has the focus answers to Enter itself.
  if (event.key === 'Enter' && event.target instanceof Element && event.target.closest('a, button, summary, input')) return;
  const action = ACTIONS[event.key];
  if (!action || (event.key === 'Enter' && !current())) return;
  event.preventDefault();
  action();
});
