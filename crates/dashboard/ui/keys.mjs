// Keyboard shortcuts. Inactive if the user turned them off, while typing, with a modifier key, and while
// a dialog is open.

/** Milliseconds for the second key after `g`. */
const GO_TIMEOUT = 1500;
let goUntil = 0;

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches('input:not([type=checkbox]):not([type=radio]):not([type=button]):not([type=submit]), textarea, select'));
}

const rows = () => /** @type {HTMLElement[]} */ ([...document.querySelectorAll('[data-row]')]).filter((row) => row.offsetParent !== null);
const currentRow = () => document.activeElement?.closest('[data-row]') ?? document.querySelector('[data-row].at');

/** @param {number} step */
function moveRow(step) {
  const all = rows();
  if (!all.length) return;
  const row = currentRow();
  const at = row instanceof HTMLElement ? all.indexOf(row) : -1;
  const next = all[at === -1 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
  document.querySelectorAll('[data-row].at').forEach((row) => row.classList.remove('at'));
  next.classList.add('at');
  next.querySelector('a')?.focus({ preventScroll: true });
  next.scrollIntoView({ block: 'nearest' });
}

/** Clicks an element in the current row, otherwise on the page. @param {string} selector */
function press(selector) {
  const target = currentRow()?.querySelector(selector) ?? document.querySelector(selector);
  if (target instanceof HTMLElement) target.click();
}

/** @type {Record<string, () => void>} */
const ACTIONS = {
  '/': () => {
    const field = document.querySelector('main input[type=search]');
    if (field instanceof HTMLInputElement) { field.focus(); field.select(); }
  },
  j: () => moveRow(1),
  k: () => moveRow(-1),
  x: () => { const box = currentRow()?.querySelector('input[type=checkbox]'); if (box instanceof HTMLElement) box.click(); },
  r: () => press('[data-key-replay]'),
  c: () => press('[data-key-curl]'),
  l: () => press('[data-go="l"]'),
  g: () => { goUntil = Date.now() + GO_TIMEOUT; },
  '?': () => { const help = document.getElementById('keys-help'); if (help instanceof HTMLDialogElement) help.showModal(); },
  Enter: () => { const link = currentRow()?.querySelector('a'); if (link instanceof HTMLElement) link.click(); },
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
  // The focused element handles Enter itself.
  if (event.key === 'Enter' && event.target instanceof Element && event.target.closest('a, button, summary, input')) return;
  const action = ACTIONS[event.key];
  if (!action || (event.key === 'Enter' && !currentRow())) return;
  event.preventDefault();
  action();
});
