// `<json-view>`: a body as raw text, pretty, or as a tree.
//
// Bodies are attacker-controlled and large. Nothing is evaluated or inserted as HTML; the text itself is
// read (`json-text.mjs`), so large numbers and duplicate names are shown unchanged. Collapsed values are
// only skipped.

import { copy } from './app.mjs';
import { PRETTY_CHARS_MAX, children, jqPath, pretty, readString, skipSpace, whole } from './json-text.mjs';

/** @typedef {import('./json-text.mjs').Value} Value */
/** @typedef {import('./json-text.mjs').Child} Child */

const MEMBERS_AT_A_TIME = 100;
const TEXT_CHARS_MAX = 500;
const FIND_DEPTH_MAX = 200;

/** @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag @param {string} [className] @param {string} [text] */
function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** @param {string} name */
function icon(name) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
  use.setAttribute('href', `#i-${name}`);
  svg.append(use);
  return svg;
}

/** An open or closed value of the tree. @typedef {{ value: Value, path: (string | number)[], add?: (until: number) => void }} Branch */

class JsonView extends (globalThis.HTMLElement ?? Object) {
  /** @type {WeakMap<Element, Branch>} */
  branches = new WeakMap();

  connectedCallback() {
    const pre = this.querySelector('pre');
    if (!pre || this.querySelector('[role="tablist"]')) return;
    /** @type {HTMLElement} */
    this.raw = pre;
    this.text = pre.textContent ?? '';
    /** @type {Value | null} */
    this.value = this.hasAttribute('json') && !this.hasAttribute('cut') ? whole(this.text) : null;
    this.place = make('div', 'json-place');
    this.append(this.place);
    this.place.hidden = true;
    if (this.value) this.tabs('tree');
    else if (this.hasAttribute('src')) this.offerAll();
  }

  /** A text in the language of the page. @param {string} name */
  label(name) {
    return this.dataset[name] ?? name;
  }

  /** Adds a button that loads the full body. */
  offerAll() {
    const button = make('button', 'plain small', this.label('load'));
    button.type = 'button';
    button.addEventListener('click', async () => {
      button.disabled = true;
      const response = await fetch(this.getAttribute('src') ?? '', { credentials: 'same-origin' });
      if (!response.ok) { button.disabled = false; return; }
      this.text = await response.text();
      this.value = whole(this.text);
      this.querySelector('[data-cut]')?.remove();
      button.remove();
      if (this.raw) this.raw.textContent = this.text;
      if (this.value) this.tabs('tree');
    });
    this.prepend(button);
  }

  /** @param {string} first */
  tabs(first) {
    const bar = make('div', 'json-bar');
    const list = make('div', 'tabs');
    list.setAttribute('role', 'tablist');
    list.setAttribute('aria-label', this.label('label'));
    const names = ['tree', 'pretty', 'raw'];
    const buttons = names.map((name) => {
      const button = make('button', 'tab', this.label(name));
      button.type = 'button';
      button.setAttribute('role', 'tab');
      button.addEventListener('click', () => show(name));
      return button;
    });
    list.addEventListener('keydown', (event) => {
      const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
      if (!step) return;
      const at = buttons.findIndex((button) => button === document.activeElement);
      const next = (at + step + names.length) % names.length;
      buttons[next]?.focus();
      show(names[next] ?? 'raw');
    });
    list.append(...buttons);
    bar.append(list, this.finder(() => show('tree')));
    this.prepend(bar);
    this.place?.setAttribute('role', 'tabpanel');
    this.place?.setAttribute('aria-label', this.label('label'));
    this.raw?.setAttribute('role', 'tabpanel');

    const show = (/** @type {string} */ name) => {
      names.forEach((other, at) => {
        buttons[at]?.setAttribute('aria-selected', String(other === name));
        if (buttons[at]) buttons[at].tabIndex = other === name ? 0 : -1;
      });
      if (!this.raw || !this.place || !this.value) return;
      this.raw.hidden = name !== 'raw';
      this.place.hidden = name === 'raw';
      if (this.place.dataset.shows === name || name === 'raw') return;
      this.place.dataset.shows = name;
      if (name === 'pretty') this.showPretty(PRETTY_CHARS_MAX);
      else this.place.replaceChildren(this.tree(this.value));
    };
    show(first);
  }

  /** @param {number} max */
  showPretty(max) {
    const { text, cut } = pretty(this.text ?? '', max);
    const pre = make('pre', 'verbatim body-raw', text);
    pre.tabIndex = 0;
    pre.setAttribute('role', 'group');
    pre.setAttribute('aria-label', this.label('pretty'));
    this.place?.replaceChildren(pre);
    if (cut) this.place?.append(this.more(() => this.showPretty(max * 4)));
  }

  /** @param {() => void} then */
  more(then) {
    const button = make('button', 'plain small', this.label('more'));
    button.type = 'button';
    button.addEventListener('click', then);
    return button;
  }

  /** @param {Value} value */
  tree(value) {
    const list = make('ul', 'json-tree');
    const row = this.row(null, value, []);
    list.append(row);
    row.querySelector('details')?.setAttribute('open', '');
    return list;
  }

  /** One value with its name. @param {string | number | null} name @param {Value} value @param {(string | number)[]} path */
  row(name, value, path) {
    const row = make('li');
    row.dataset.start = String(value.start);
    const head = make('span', 'json-line');
    if (name !== null) head.append(make('span', typeof name === 'number' ? 'json-index' : 'json-name', String(name)), ': ');
    const isOpenable = value.kind === '{' || value.kind === '[';
    if (!isOpenable) {
      head.append(this.leaf(value));
      row.append(head, this.copies(value, path));
      return row;
    }
    const details = make('details');
    const summary = make('summary');
    const mark = value.kind === '{' ? '{…}' : '[…]';
    const isEmpty = skipSpace(this.text ?? '', value.start + 1) === value.end - 1;
    head.append(make('span', 'json-mark', isEmpty ? mark.replace('…', '') : mark));
    summary.append(head);
    details.append(summary);
    this.branches.set(details, { value, path });
    details.addEventListener('toggle', () => { if (details.open) this.fill(details, -1); });
    row.append(details, this.copies(value, path));
    return row;
  }

  /** Adds members of an expanded value: the next batch, or up to a position in the text.
   * @param {HTMLDetailsElement} details @param {number} until */
  fill(details, until) {
    const branch = this.branches.get(details);
    if (!branch) return;
    const isNew = !branch.add;
    branch.add ??= this.adder(details, branch);
    if (isNew || until >= 0) branch.add(until);
  }

  /** Returns a function that adds rows. With a position in the text, the member there gets a row and
   * distant members before it stay collapsed in a gap: rendering ten thousand rows takes too long.
   * @param {HTMLDetailsElement} details @param {Branch} branch */
  adder(details, { value, path }) {
    const list = make('ul');
    details.append(list);
    const rest = children(this.text ?? '', value);
    const row = (/** @type {Child} */ child) => this.row(child.name, child.value, [...path, child.name]);
    /** @type {Map<Element, Child[]>} */
    const gaps = new Map();
    /** Rows for members, or a gap where there are many. @param {Child[]} passed @returns {Element[]} */
    const rowsOrGap = (passed) => {
      if (passed.length <= MEMBERS_AT_A_TIME) return passed.map(row);
      const gap = make('li');
      gap.append(this.more(() => {
        gaps.delete(gap);
        gap.replaceWith(...passed.slice(0, MEMBERS_AT_A_TIME).map(row), ...rowsOrGap(passed.slice(MEMBERS_AT_A_TIME)));
      }));
      gaps.set(gap, passed);
      return [gap];
    };
    const openGap = (/** @type {number} */ until) => {
      for (const [gap, passed] of gaps) {
        const at = passed.findIndex((child) => child.value.end === until);
        if (at < 0) continue;
        gaps.delete(gap);
        gap.replaceWith(...rowsOrGap(passed.slice(0, at)), ...passed.slice(at, at + 1).map(row), ...rowsOrGap(passed.slice(at + 1)));
        return;
      }
    };
    let last = 0;
    const more = this.more(() => add(-1));
    /** @param {number} until */
    const add = (until) => {
      if (until >= 0 && last >= until) { openGap(until); return; }
      more.remove();
      /** @type {Child[]} */
      const passed = [];
      for (let next = rest.next(); ; next = rest.next()) {
        if (next.done) { last = Infinity; break; }
        passed.push(next.value);
        last = next.value.value.end;
        if (last >= until && (until >= 0 || passed.length === MEMBERS_AT_A_TIME)) break;
      }
      const found = until >= 0 ? passed.splice(-1) : [];
      list.append(...rowsOrGap(passed), ...found.map(row));
      if (last !== Infinity) details.append(more);
    };
    return add;
  }

  /** @param {Value} value */
  leaf(value) {
    const literal = (this.text ?? '').slice(value.start, value.end);
    const span = make('span', value.kind === '"' ? 'json-string' : 'json-number', literal.slice(0, TEXT_CHARS_MAX));
    if (literal.length <= TEXT_CHARS_MAX) return span;
    const wrap = make('span');
    const button = this.more(() => { span.textContent = literal; button.remove(); });
    wrap.append(span, '… ', button);
    return wrap;
  }

  /** @param {Value} value @param {(string | number)[]} path */
  copies(value, path) {
    const place = make('span', 'json-copies');
    const button = (/** @type {string} */ label, /** @type {string} */ iconName, /** @type {() => string} */ text) => {
      const made = make('button', 'plain small');
      made.type = 'button';
      made.title = label;
      made.setAttribute('aria-label', label);
      made.append(icon(iconName));
      made.addEventListener('click', async () => {
        const done = await copy(text(), made.closest('li, summary') ?? made.parentElement);
        made.replaceChildren(icon(done ? 'check' : 'cross'));
        setTimeout(() => made.replaceChildren(icon(iconName)), 1200);
      });
      place.append(made);
    };
    button(this.label('copyValue'), 'copy', () => {
      const literal = (this.text ?? '').slice(value.start, value.end);
      return value.kind === '"' ? readString(literal) : literal;
    });
    button(this.label('copyPath'), 'route', () => jqPath(path));
    return place;
  }

  /** A search field that expands the path to each match. @param {() => void} showTree */
  finder(showTree) {
    const form = make('form', 'json-find');
    const input = make('input');
    input.type = 'search';
    input.placeholder = this.label('find');
    input.setAttribute('aria-label', this.label('find'));
    const status = make('span', 'soft small');
    status.setAttribute('role', 'status');
    let from = 0;
    input.addEventListener('input', () => { from = 0; status.textContent = ''; });
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      const needle = input.value.toLowerCase();
      if (!needle || !this.text) return;
      // Lowercasing changes the length of some letters, which would shift positions.
      const lower = this.text.toLowerCase();
      this.lower ??= lower.length === this.text.length ? lower : this.text;
      let at = this.lower.indexOf(needle, from);
      if (at < 0) at = this.lower.indexOf(needle);
      status.textContent = at < 0 ? this.label('missing') : '';
      if (at < 0) return;
      from = at + 1;
      showTree();
      this.reveal(at);
    });
    form.append(input, status);
    return form;
  }

  /** Expands every value around a position in the text. @param {number} at */
  reveal(at) {
    const text = this.text ?? '';
    let row = this.place?.querySelector(':scope > ul > li');
    let value = this.value;
    for (let depth = 0; depth < FIND_DEPTH_MAX; depth += 1) {
      const details = row?.querySelector(':scope > details');
      if (!(details instanceof HTMLDetailsElement) || !value) break;
      /** @type {Child | undefined} */
      let found;
      for (const child of children(text, value)) {
        if (child.value.end > at) { found = child; break; }
      }
      if (!found) break;
      details.open = true;
      // The toggle event fires later, but the rows are needed now.
      this.fill(details, found.value.end);
      const next = details.querySelector(`:scope > ul > li[data-start="${found.value.start}"]`);
      if (!next) break;
      row = next;
      value = found.value;
      if (value.start > at) break;
    }
    this.place?.querySelector('.json-found')?.classList.remove('json-found');
    row?.classList.add('json-found');
    row?.scrollIntoView({ block: 'nearest' });
  }
}

if (globalThis.customElements) customElements.define('json-view', JsonView);
