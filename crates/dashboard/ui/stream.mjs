// One stream a tab: what happens in the gateway, and pages that move by themselves.
// It is open only while the tab is seen and something on the page wants it.

/** @typedef {{counts: Record<string, number>, rows: any[], skipped: number, last_id?: string, reset?: boolean}} Batch */

const BACKOFF_FIRST = 1000;
const BACKOFF_MAX = 30_000;
const REFRESH_EVERY = 2000;
/** Ages and rates grow old without news. */
const REFRESH_QUIET = 15_000;
/** Says that no person sees the whole answer: it is refused with 401 instead of the login, and what a
 * page says once stays for the next one. */
const AS_SCRIPT = { 'x-surehook-refresh': '1' };

/** @type {EventSource | null} */
let open = null;
/** @type {string | null} */
let lastId = null;
let query = new URLSearchParams({ rows: '0' });
let failures = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let again;
/** @type {(batch: Batch) => void} */
let tell = () => {};
/** @type {(isOpen: boolean) => void} */
let tellState = () => {};
let wanted = false;

/**
 * Follows what happens, with the rows that a filter lets through. There is one follower a page.
 * @param {URLSearchParams} filter
 * @param {(batch: Batch) => void} onBatch
 * @param {(isOpen: boolean) => void} onState
 */
export function follow(filter, onBatch, onState) {
  query = filter;
  tell = onBatch;
  tellState = onState;
  wanted = true;
  lastId = null;
  reopen();
}

function connect() {
  clearTimeout(again);
  if (open || document.hidden || !wanted) return;
  const address = new URLSearchParams(query);
  if (lastId) address.set('since', lastId);
  const stream = new EventSource(`/stream?${address}`);
  open = stream;
  stream.onopen = () => { failures = 0; tellState(true); };
  stream.addEventListener('batch', (event) => {
    lastId = event.lastEventId || lastId;
    /** @type {Batch} */
    const batch = JSON.parse(event.data);
    tell(batch);
    news();
  });
  stream.onerror = () => {
    // Ours is slower than the browser's own way to come back, and never in step with other tabs.
    const isRefused = stream.readyState === EventSource.CLOSED;
    disconnect();
    tellState(false);
    if (isRefused) leaveIfSignedOut();
    const wait = Math.min(BACKOFF_MAX, BACKOFF_FIRST * 2 ** failures++);
    again = setTimeout(connect, wait * (0.5 + Math.random() / 2));
  };
}

/** A stream does not say why it was refused. Who is signed out is led to the login, and back. */
async function leaveIfSignedOut() {
  try {
    const answer = await fetch(location.href, { method: 'HEAD', headers: AS_SCRIPT, cache: 'no-store' });
    if (answer.status === 401) location.reload();
  } catch {
    // No connection: the stream tries again by itself.
  }
}

function disconnect() {
  clearTimeout(again);
  open?.close();
  open = null;
}

function reopen() {
  disconnect();
  connect();
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) return disconnect();
  failures = 0;
  connect();
  news();
});
addEventListener('pagehide', disconnect);
addEventListener('pageshow', (event) => { if (event.persisted) { connect(); news(); } });

// Regions that move by themselves.

/** What the server said last, so that what did not change is not touched. @type {Map<string, string>} */
const known = new Map();
let isDue = false;
let isFetching = false;
let nextAt = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

const regions = () => [...document.querySelectorAll('[data-refresh][id]')];

/** Whether something on the page moves without news: a job, a count-down. */
const goesOn = () => document.querySelector('[data-refresh-always]') !== null;

function news() {
  if (!regions().length) return;
  isDue = true;
  plan(Math.max(0, nextAt - Date.now()));
}

/** @param {number} wait */
function plan(wait) {
  clearTimeout(timer);
  timer = setTimeout(refresh, wait);
}

/** Whether something would be taken from under somebody's hands. */
function isBusy() {
  const at = document.activeElement;
  const types = at instanceof HTMLElement && (at.isContentEditable || at.matches('main textarea, main select, main input:not([type=checkbox]):not([type=radio]):not([type=button])'));
  const selection = getSelection();
  return types
    || document.querySelector('dialog[open]') !== null
    || document.querySelector('[data-refresh] input:checked, [data-row] input:checked') !== null
    || (selection !== null && !selection.isCollapsed);
}

async function refresh() {
  if (isFetching || document.hidden) return;
  if (isBusy()) return plan(1000);
  isDue = false;
  isFetching = true;
  const begun = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { accept: 'text/html', ...AS_SCRIPT }, cache: 'no-store' });
    if (answer.status === 401) return location.reload();
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
    // Somebody may have begun something while it was on its way.
    if (isBusy()) { isDue = true; return; }
    for (const region of regions()) swap(region, fresh.getElementById(region.id));
    document.dispatchEvent(new CustomEvent('surehook:refreshed'));
  } catch {
    // No connection: the stream notices as well, and the next news tries again.
  } finally {
    isFetching = false;
    // A gateway that answers slowly is asked less often.
    const pause = Math.max(REFRESH_EVERY, 5 * (Date.now() - begun));
    nextAt = Date.now() + pause;
    plan(isDue || goesOn() ? pause : Math.max(pause, REFRESH_QUIET));
  }
}

const HOLDERS = 'a[href], button, summary, input, select, [tabindex]';

/** @param {Element} region @param {HTMLElement | null} fresh */
function swap(region, fresh) {
  if (!fresh) return;
  const html = fresh.outerHTML;
  if (known.get(region.id) === html) return;
  known.set(region.id, html);
  const focused = document.activeElement;
  const place = focused === region ? -1 : region.contains(focused) ? [...region.querySelectorAll(HOLDERS)].indexOf(/** @type {Element} */ (focused)) : null;
  const href = focused?.getAttribute('href');
  const opened = [...region.querySelectorAll('details')].map((details) => details.open);
  const at = region.querySelector('[data-row].at')?.getAttribute('data-row');
  const scroll = region.scrollTop;
  region.replaceWith(fresh);
  fresh.scrollTop = scroll;
  fresh.querySelectorAll('details').forEach((details, n) => { if (opened[n]) details.open = true; });
  if (at) fresh.querySelector(`[data-row="${CSS.escape(at)}"]`)?.classList.add('at');
  if (place === null) return;
  const holders = [...fresh.querySelectorAll(HOLDERS)];
  const next = place === -1 ? fresh : (href && holders.find((holder) => holder.getAttribute('href') === href)) || holders[place];
  if (next instanceof HTMLElement) next.focus({ preventScroll: true });
}

if (regions().length) {
  wanted = true;
  connect();
  plan(goesOn() ? REFRESH_EVERY : REFRESH_QUIET);
}
