// Live updates: one stream per tab, and automatic refresh of page regions.
// The stream is open only while the tab is visible and the page needs it.

/** @typedef {{counts: Record<string, number>, rows: any[], skipped: number, last_id?: string, reset?: boolean}} Batch */

const BACKOFF_FIRST = 1000;
const BACKOFF_MAX = 30_000;
const REFRESH_EVERY = 2000;
/** Ages and rates change even without updates. */
const REFRESH_QUIET = 15_000;
/** Marks requests of scripts: they get 401 instead of the login page, and a flash message stays for the
 * next page. */
const AS_SCRIPT = { 'x-surehook-refresh': '1' };

/** @type {EventSource | null} */
let open = null;
/** @type {string | null} */
let lastId = null;
let query = new URLSearchParams({ rows: '0' });
let failures = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let reconnectTimer;
/** @type {(batch: Batch) => void} */
let onBatchReceived = () => {};
/** @type {(isOpen: boolean) => void} */
let onStateChange = () => {};
let isNeeded = false;

/**
 * Subscribes to live updates that match a filter. A page has one subscriber.
 * @param {URLSearchParams} filter
 * @param {(batch: Batch) => void} onBatch
 * @param {(isOpen: boolean) => void} onState
 */
export function subscribe(filter, onBatch, onState) {
  query = filter;
  onBatchReceived = onBatch;
  onStateChange = onState;
  isNeeded = true;
  lastId = null;
  reopen();
}

function connect() {
  clearTimeout(reconnectTimer);
  if (open || document.hidden || !isNeeded) return;
  const address = new URLSearchParams(query);
  if (lastId) address.set('since', lastId);
  const stream = new EventSource(`/stream?${address}`);
  open = stream;
  stream.onopen = () => {
    failures = 0;
    onStateChange(true);
    // What changed between loading the page and opening the stream was not reported.
    nextAt = Math.max(nextAt, Date.now() + REFRESH_EVERY);
    requestRefresh();
  };
  stream.addEventListener('batch', (event) => {
    lastId = event.lastEventId || lastId;
    /** @type {Batch} */
    const batch = JSON.parse(event.data);
    onBatchReceived(batch);
    requestRefresh();
  });
  stream.onerror = () => {
    // Slower than the browser's own reconnect, and with jitter so that tabs do not reconnect together.
    const isRefused = stream.readyState === EventSource.CLOSED;
    disconnect();
    onStateChange(false);
    if (isRefused) reloadIfSignedOut();
    const wait = Math.min(BACKOFF_MAX, BACKOFF_FIRST * 2 ** failures++);
    reconnectTimer = setTimeout(connect, wait * (0.5 + Math.random() / 2));
  };
}

/** `EventSource` does not report the status. If the session has ended, reloading leads to the login. */
async function reloadIfSignedOut() {
  try {
    const response = await fetch(location.href, { method: 'HEAD', headers: AS_SCRIPT, cache: 'no-store' });
    if (response.status === 401) location.reload();
  } catch {
    // No connection: the stream reconnects anyway.
  }
}

function disconnect() {
  clearTimeout(reconnectTimer);
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
  requestRefresh();
});
addEventListener('pagehide', disconnect);
addEventListener('pageshow', (event) => { if (event.persisted) { connect(); requestRefresh(); } });

// Regions that refresh automatically.

/** The last HTML of each region, so that unchanged regions are not replaced. @type {Map<string, string>} */
const known = new Map();
let isDue = false;
let isFetching = false;
let nextAt = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

const regions = () => [...document.querySelectorAll('[data-refresh][id]')];

/** Whether the page changes without updates: a running job, a countdown. */
const alwaysRefreshes = () => document.querySelector('[data-refresh-always]') !== null;

function requestRefresh() {
  if (!regions().length) return;
  isDue = true;
  scheduleRefresh(Math.max(0, nextAt - Date.now()));
}

/** @param {number} wait */
function scheduleRefresh(wait) {
  clearTimeout(timer);
  timer = setTimeout(refresh, wait);
}

/** Whether a refresh would disturb the user: typing, a dialog, a selection. */
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
  if (isBusy()) return scheduleRefresh(1000);
  isDue = false;
  isFetching = true;
  const startedAt = Date.now();
  try {
    const response = await fetch(location.href, { headers: { accept: 'text/html', ...AS_SCRIPT }, cache: 'no-store' });
    if (response.status === 401) return location.reload();
    if (!response.ok) return;
    const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
    // The user may have started something meanwhile.
    if (isBusy()) { isDue = true; return; }
    for (const region of regions()) replaceRegion(region, fresh.getElementById(region.id));
    document.dispatchEvent(new CustomEvent('surehook:refreshed'));
  } catch {
    // No connection: the next update tries again.
  } finally {
    isFetching = false;
    // A slow gateway is asked less often.
    const pause = Math.max(REFRESH_EVERY, 5 * (Date.now() - startedAt));
    nextAt = Date.now() + pause;
    scheduleRefresh(isDue || alwaysRefreshes() ? pause : Math.max(pause, REFRESH_QUIET));
  }
}

const FOCUSABLE = 'a[href], button, summary, input, select, [tabindex]';

/** @param {Element} region @param {HTMLElement | null} fresh */
function replaceRegion(region, fresh) {
  if (!fresh) return;
  const html = fresh.outerHTML;
  if (known.get(region.id) === html) return;
  known.set(region.id, html);
  const focused = document.activeElement;
  const place = focused === region ? -1 : region.contains(focused) ? [...region.querySelectorAll(FOCUSABLE)].indexOf(/** @type {Element} */ (focused)) : null;
  const href = focused?.getAttribute('href');
  const opened = [...region.querySelectorAll('details')].map((details) => details.open);
  const at = region.querySelector('[data-row].at')?.getAttribute('data-row');
  const scroll = region.scrollTop;
  region.replaceWith(fresh);
  fresh.scrollTop = scroll;
  fresh.querySelectorAll('details').forEach((details, n) => { if (opened[n]) details.open = true; });
  if (at) fresh.querySelector(`[data-row="${CSS.escape(at)}"]`)?.classList.add('at');
  if (place === null) return;
  const candidates = [...fresh.querySelectorAll(FOCUSABLE)];
  const next = place === -1 ? fresh : (href && candidates.find((candidate) => candidate.getAttribute('href') === href)) || candidates[place];
  if (next instanceof HTMLElement) next.focus({ preventScroll: true });
}

if (regions().length) {
  isNeeded = true;
  connect();
  scheduleRefresh(alwaysRefreshes() ? REFRESH_EVERY : REFRESH_QUIET);
}
