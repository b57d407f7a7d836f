// Reads JSON from its text without `JSON.parse`, which would lose digits of large numbers and duplicate
// names. Values are only read as far as needed.

/** Position and kind of a value in the text.
 * @typedef {{ start: number, end: number, kind: '{' | '[' | '"' | 'n' }} Value */
/** A member of an object or an entry of an array. @typedef {{ name: string | number, value: Value }} Child */

export const PRETTY_CHARS_MAX = 300_000;
const INDENT_MAX = 40;
const LITERAL = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.+-])/y;
const SPACE = /[ \t\n\r]*/y;

/** @param {RegExp} pattern @param {string} text @param {number} at */
function matchEnd(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : -1;
}

/** @param {string} text @param {number} at */
export const skipSpace = (text, at) => matchEnd(SPACE, text, at);

/** The end of a string. Regular expressions of some browsers fail on strings of a megabyte.
 * @param {string} text @param {number} at */
function stringEnd(text, at) {
  for (let i = at + 1; i < text.length; i += 1) {
    const c = text.charCodeAt(i);
    if (c === 34) return i + 1;
    if (c < 32) return -1;
    if (c === 92) {
      const escaped = text.charCodeAt(i + 1);
      if (escaped === 117) {
        if (!/^[\da-fA-F]{4}$/.test(text.slice(i + 2, i + 6))) return -1;
        i += 5;
      } else if ('"\\/bfnrt'.includes(text[i + 1] ?? ' ')) i += 1;
      else return -1;
    }
  }
  return -1;
}

/** Scans tokens without recursion, so that deep nesting cannot overflow the stack. Calls
 * `see(token, depth, start, end)` for each; returns whether the text is exactly one value.
 * @param {string} text
 * @param {(token: string, depth: number, start: number, end: number) => boolean | void} see - `false` stops the scan
 */
export function scan(text, see) {
  /** @type {string[]} */
  const open = [];
  let at = skipSpace(text, 0);
  let wants = 'value';
  while (at < text.length) {
    const c = text[at] ?? '';
    const inside = open[open.length - 1];
    let end = at + 1;
    let token = c;
    if (wants === 'value' || wants === 'first') {
      if (c === ']' && wants === 'first' && inside === '[') { open.pop(); wants = 'after'; }
      else if (c === '{') { open.push(c); wants = 'name1'; }
      else if (c === '[') { open.push(c); wants = 'first'; }
      else {
        end = c === '"' ? stringEnd(text, at) : matchEnd(LITERAL, text, at);
        if (end < 0) return false;
        token = c === '"' ? '"' : 'n';
        wants = 'after';
      }
    } else if (wants === 'name1' || wants === 'name') {
      if (c === '}' && wants === 'name1') { open.pop(); wants = 'after'; }
      else {
        end = c === '"' ? stringEnd(text, at) : -1;
        if (end < 0) return false;
        token = 'k';
        wants = ':';
      }
    } else if (wants === ':') {
      if (c !== ':') return false;
      wants = 'value';
    } else if (c === ',' && inside) wants = inside === '{' ? 'name' : 'value';
    else if ((c === '}' && inside === '{') || (c === ']' && inside === '[')) { open.pop(); wants = 'after'; }
    else return false;
    const depth = token === '{' || token === '[' ? open.length - 1 : open.length;
    if (see(token, depth, at, end) === false) return true;
    at = skipSpace(text, end);
  }
  return wants === 'after' && open.length === 0;
}

/** The value of a JSON text, or null if it is invalid. @param {string} text @returns {Value | null} */
export function whole(text) {
  if (!scan(text, () => true)) return null;
  const start = skipSpace(text, 0);
  return valueAt(text, start, text.trimEnd().length);
}

/** @param {string} text @param {number} start @param {number} end @returns {Value} */
function valueAt(text, start, end) {
  const c = text[start];
  return { start, end, kind: c === '{' || c === '[' || c === '"' ? c : 'n' };
}

/** The members or entries of a value. The text must be valid JSON.
 * @param {string} text @param {Value} value @returns {Generator<Child>} */
export function* children(text, value) {
  if (value.kind !== '{' && value.kind !== '[') return;
  let at = skipSpace(text, value.start + 1);
  let index = 0;
  while (at < value.end - 1) {
    /** @type {string | number} */
    let name = index;
    if (value.kind === '{') {
      const end = stringEnd(text, at);
      name = readString(text.slice(at, end));
      at = skipSpace(text, skipSpace(text, end) + 1);
    }
    const end = valueEnd(text, at);
    yield { name, value: valueAt(text, at, end) };
    index += 1;
    at = skipSpace(text, end);
    if (text[at] === ',') at = skipSpace(text, at + 1);
  }
}

/** Where a value ends. @param {string} text @param {number} at */
function valueEnd(text, at) {
  const c = text[at];
  if (c === '"') return stringEnd(text, at);
  if (c !== '{' && c !== '[') return matchEnd(LITERAL, text, at);
  let depth = 0;
  for (let i = at; i < text.length; i += 1) {
    const c = text.charCodeAt(i);
    if (c === 34) i = stringEnd(text, i) - 1;
    else if (c === 123 || c === 91) depth += 1;
    else if (c === 125 || c === 93) {
      depth -= 1;
      if (depth === 0) return i + 1;
    }
  }
  return text.length;
}

/** Decodes a string literal. @param {string} literal */
export function readString(literal) {
  return String(JSON.parse(literal));
}

/** Pretty-prints a text, up to a number of characters.
 * @param {string} text @param {number} max @returns {{ text: string, cut: boolean }} */
export function pretty(text, max = PRETTY_CHARS_MAX) {
  /** @type {string[]} */
  const parts = [];
  let length = 0;
  let before = '';
  let cut = false;
  const line = (/** @type {number} */ depth) => `\n${'  '.repeat(Math.min(depth, INDENT_MAX))}`;
  scan(text, (token, depth, start, end) => {
    const closes = token === '}' || token === ']';
    const opened = before === '{' || before === '[';
    let part = text.slice(start, end);
    if (token === ':') part = ': ';
    else if (before === ':' || (closes && opened) || token === ',') part = part;
    else if (before !== '') part = line(depth) + part;
    before = token;
    parts.push(part);
    length += part.length;
    cut = length > max;
    return !cut;
  });
  return { text: parts.join(''), cut };
}

/** A path for jq: `.data.items[0]["odd name"]`. @param {(string | number)[]} names */
export function jqPath(names) {
  let path = '';
  for (const name of names) {
    if (typeof name === 'number') path += `${path ? '' : '.'}[${name}]`;
    else if (/^[A-Za-z_]\w*$/.test(name)) path += `.${name}`;
    else path += `${path ? '' : '.'}[${JSON.stringify(name)}]`;
  }
  return path || '.';
}
