// `<live-tail>`: the newest rows in real time. Its cost does not depend on the event rate: the server
// sends a few batches per second, pending rows are limited, and table rows are reused.

import { subscribe } from './stream.mjs';

const ROWS_MAX = 200;
const RATE_WINDOW = 5000;
const SUMMARY_EVERY = 10_000;

const root = document.documentElement;
const clock = new Intl.DateTimeFormat(root.lang, { hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3, hour12: false, timeZone: root.dataset.zone || undefined });
const number = new Intl.NumberFormat(root.lang);
const SVG = 'http://www.w3.org/2000/svg';

/** Replaces each `{}` of a text by a value. @param {string | undefined} text @param {...(string|number)} values */
function fill(text, ...values) {
  return (text ?? '').split('{}').map((part, n) => part + (n < values.length ? values[n] : '')).join('');
}

/** Sets a text if it changed. @param {Element} place @param {string} text */
function setText(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/** A reusable row of the table. */
class TailRow {
  /** @param {string[]} labels */
  constructor(labels) {
    this.row = document.createElement('tr');
    this.cells = labels.map((label) => {
      const cell = this.row.insertCell();
      cell.dataset.label = label;
      return cell;
    });
    this.link = document.createElement('a');
    this.time = document.createElement('time');
    this.link.append(this.time);
    this.cells[0].append(this.link);
    this.pill = document.createElement('span');
    const icon = document.createElementNS(SVG, 'svg');
    icon.setAttribute('class', 'icon');
    icon.setAttribute('aria-hidden', 'true');
    this.use = document.createElementNS(SVG, 'use');
    icon.append(this.use);
    this.word = document.createTextNode('');
    this.pill.append(icon, this.word);
    this.more = document.createElement('span');
    this.more.className = 'soft small';
    this.cells[1].append(this.pill, ' ', this.more);
    this.cells[4].className = 'mono';
  }

  /** @param {any} update @param {Record<string, [string, string, string]>} badges */
  fill(update, badges) {
    const [tone, icon, word] = badges[update.status] ?? ['', 'dot', update.status];
    this.row.dataset.row = update.event;
    this.row.classList.remove('at');
    this.link.href = `/events/${encodeURIComponent(update.event)}`;
    this.time.dateTime = update.at;
    this.time.title = update.at;
    this.time.textContent = clock.format(new Date(update.at));
    if (this.status !== update.status) {
      this.status = update.status;
      this.pill.className = `pill ${tone}`;
      this.use.setAttribute('href', `#i-${icon}`);
      this.word.data = word;
    }
    setText(this.more, update.attempts > 1 ? `×${update.attempts}` : '');
    setText(this.cells[2], update.source ?? '');
    setText(this.cells[3], update.kind ?? '');
    setText(this.cells[4], update.key ?? '');
    setText(this.cells[5], update.destination ?? '');
  }
}

class LiveTail extends HTMLElement {
  connectedCallback() {
    this.badges = JSON.parse(this.dataset.badges ?? '{}');
    const find = (/** @type {string} */ what) => /** @type {any} */ (this.querySelector(what));
    /** @type {HTMLFormElement} */ this.form = find('form');
    /** @type {HTMLTableSectionElement} */ this.body = find('tbody');
    this.button = find('.tail-pause');
    this.rate = find('.tail-rate');
    this.shownText = find('.tail-shown');
    this.note = find('.tail-note');
    this.summary = find('.tail-summary');
    this.empty = find('.tail-empty');
    this.labels = [...this.querySelectorAll('thead th')].map((th) => th.textContent ?? '');
    /** Newest last. @type {any[]} */
    this.waiting = [];
    /** Newest first. @type {TailRow[]} */
    this.lines = [];
    this.isPaused = false;
    this.isTouched = false;
    this.isDrawn = true;
    this.reset();
    this.form.addEventListener('submit', (event) => event.preventDefault());
    this.form.addEventListener('change', () => this.applyFilter());
    this.button.addEventListener('click', () => this.pause(!this.isPaused));
    // Rows do not move while the user points at them.
    const table = find('.tail');
    table.addEventListener('pointerenter', () => { this.isTouched = true; });
    table.addEventListener('pointerleave', () => { this.isTouched = false; this.draw(); });
    table.addEventListener('focusout', () => this.draw());
    this.subscribe();
    this.ticks = setInterval(() => this.tick(), 500);
    this.summaries = setInterval(() => this.summarise(), SUMMARY_EVERY);
  }

  disconnectedCallback() {
    clearInterval(this.ticks);
    clearInterval(this.summaries);
  }

  reset() {
    this.total = 0;
    this.shown = 0;
    this.newCount = 0;
    this.since = { all: 0, dead: 0 };
    this.began = performance.now();
    /** @type {{at: number, count: number}[]} */
    this.recent = [];
    this.waiting.length = 0;
    this.lines.length = 0;
    this.body.replaceChildren();
    this.empty.hidden = false;
    this.note.textContent = '';
  }

  /** The filter as query parameters. */
  filter() {
    const filter = new URLSearchParams();
    for (const [name, value] of new FormData(this.form)) if (value) filter.set(name, String(value));
    return filter;
  }

  applyFilter() {
    const filter = this.filter();
    history.replaceState(null, '', filter.size ? `/live?${filter}` : '/live');
    this.reset();
    this.subscribe();
  }

  subscribe() {
    subscribe(this.filter(), (batch) => this.addBatch(batch), (isOpen) => {
      this.note.textContent = isOpen ? '' : this.dataset.lost ?? '';
    });
  }

  get isHeld() {
    return this.isPaused || this.isTouched || this.body.contains(document.activeElement);
  }

  /** @param {boolean} isPaused */
  pause(isPaused) {
    this.isPaused = isPaused;
    this.button.querySelector('span').textContent = isPaused ? this.dataset.resume : this.dataset.pause;
    this.draw();
    this.tick();
  }

  /** @param {import('./stream.mjs').Batch} batch */
  addBatch(batch) {
    const { destinations: _, ...counts } = batch.counts;
    const count = Object.values(counts).reduce((sum, some) => sum + some, 0);
    this.total += count;
    this.since.all += count;
    this.since.dead += counts.dead ?? 0;
    this.recent.push({ at: performance.now(), count });
    if (batch.reset) this.note.textContent = this.dataset.gap ?? '';
    this.waiting.push(...batch.rows);
    if (this.waiting.length > ROWS_MAX) this.waiting.splice(0, this.waiting.length - ROWS_MAX);
    if (this.isHeld) this.newCount += count;
    this.draw();
  }

  draw() {
    if (!this.isDrawn || this.isHeld || !this.waiting.length) return;
    this.isDrawn = false;
    requestAnimationFrame(() => {
      this.isDrawn = true;
      if (this.isHeld) return;
      this.newCount = 0;
      this.empty.hidden = true;
      const rows = this.waiting.splice(0);
      this.shown += rows.length;
      const top = document.createDocumentFragment();
      for (const update of rows) {
        const line = this.lines.length < ROWS_MAX ? new TailRow(this.labels) : /** @type {TailRow} */ (this.lines.pop());
        line.fill(update, this.badges);
        this.lines.unshift(line);
        top.prepend(line.row);
      }
      this.body.prepend(top);
    });
  }

  tick() {
    const now = performance.now();
    while (this.recent.length && this.recent[0].at < now - RATE_WINDOW) this.recent.shift();
    const over = Math.max(500, Math.min(RATE_WINDOW, now - this.began));
    const rate = this.recent.reduce((sum, some) => sum + some.count, 0) * 1000 / over;
    this.rate.textContent = fill(this.dataset.rate, number.format(rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate)));
    this.shownText.textContent = this.isHeld && this.newCount
      ? fill(this.dataset.paused, number.format(this.newCount))
      : fill(this.dataset.shown, number.format(this.shown), number.format(this.total));
  }

  summarise() {
    if (this.since.all) this.summary.textContent = fill(this.dataset.summary, number.format(this.since.all), number.format(this.since.dead));
    this.since = { all: 0, dead: 0 };
  }
}
customElements.define('live-tail', LiveTail);
