/** Text of agents, files and people, made fit to be read: nothing in it hides, reorders or acts.
 *
 *  The same rules as `intercom/model/visible_text.py`. The server applies them; the page applies them again, because
 *  everything that it draws may come from an agent. Each function accepts its own result. Pure. */

/** The characters that are inspected. All others are shown unchanged. */
const UNUSUAL = /[^\n\t\x20-\x7e\xa1-\xac\xae-\u02ff]/gu;
const HIDDEN = /^[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]$/u;
const COMBINING = /^[\p{Mn}\p{Me}]$/u;
const SPACE = /^\p{Zs}$/u;
const LETTER = /^[\p{Ll}\p{Lu}\p{Lt}\p{Lo}\p{Lm}\p{Mc}]$/u;
const SYMBOL = /^[\p{So}\p{Sm}\u203c\u2049\u2139\u3030\u{1f3fb}-\u{1f3ff}]$/u;
/** Letters and marks without a shape. */
const SHAPELESS = /^[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u{e0000}-\u{e0fff}]$/u;
const SELECTOR = /^[\ufe00-\ufe0f\u180b-\u180f]$/u;
const JOINER = /^[\u200c\u200d]$/u;
const KEYCAP = "\u20e3";
/** More accents than this on one letter serve to cover the lines around it. */
const ACCENTS = 3;

type Kind = "plain" | "hidden" | "joiner" | "selector" | "space" | "combining";

function kindOf(character: string): Kind {
  if (JOINER.test(character)) return "joiner";
  if (SELECTOR.test(character)) return "selector";
  if (HIDDEN.test(character) || SHAPELESS.test(character)) return "hidden";
  if (SPACE.test(character)) return "space";
  return COMBINING.test(character) ? "combining" : "plain";
}

/** Return the code of a character that cannot be shown: `\x1b`, `<U+202E>`. */
export function codeOf(character: string): string {
  let point = character.codePointAt(0) ?? 0;
  if (point >= 0xdc80 && point <= 0xdcff) point -= 0xdc00;
  const hex = point.toString(16);
  return point < 0x100 ? `\\x${hex.padStart(2, "0")}` : `<U+${hex.toUpperCase().padStart(4, "0")}>`;
}

function before(text: string, at: number): string {
  if (at <= 0) return "";
  const low = text.charCodeAt(at - 1);
  const high = at > 1 ? text.charCodeAt(at - 2) : 0;
  const isPair = low >= 0xdc00 && low <= 0xdfff && high >= 0xd800 && high <= 0xdbff;
  return text.slice(isPair ? at - 2 : at - 1, at);
}

function after(text: string, at: number): string {
  const point = text.codePointAt(at);
  return point === undefined ? "" : String.fromCodePoint(point);
}

const isSymbol = (character: string) => character !== "" && SYMBOL.test(character);

/** Whether this selects the emoji or the text form of the symbol before it, or of a keycap. */
function selectsEmoji(text: string, at: number, character: string): boolean {
  if (character !== "\ufe0e" && character !== "\ufe0f") return false;
  const previous = before(text, at);
  return isSymbol(previous) || (/^[0-9#*]$/.test(previous) && after(text, at + 1) === KEYCAP);
}

function joinsEmoji(text: string, at: number): boolean {
  let previous = before(text, at);
  if (previous === "\ufe0e" || previous === "\ufe0f") previous = before(text, at - 1);
  return isSymbol(previous) && isSymbol(after(text, at + 1));
}

/** Whether a combining character follows a letter, with few others between. */
function isAccent(text: string, at: number, character: string): boolean {
  let previous = before(text, at);
  if (character === KEYCAP) return previous === "\ufe0f";
  let count = 0;
  while (previous && COMBINING.test(previous) && count < ACCENTS) {
    at -= previous.length;
    count += 1;
    previous = before(text, at);
  }
  return count < ACCENTS && previous !== "" && LETTER.test(previous);
}

/** Write every invisible or reordering character of prose as its code. Line feeds and tabs stay, and joiners inside
 *  emoji and words of other scripts. */
export function visible(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(UNUSUAL, (character: string, at: number, whole: string) => {
    switch (kindOf(character)) {
      case "hidden":
        return codeOf(character);
      case "joiner": {
        const previous = before(whole, at);
        // eslint-disable-next-line no-control-regex
        return previous && !/^[\x00-\x7f]$/.test(previous) && !JOINER.test(previous) ? character : codeOf(character);
      }
      case "selector":
        return selectsEmoji(whole, at, character) ? character : codeOf(character);
      default:
        return character;
    }
  });
}

/** Make a text visible on one line: every run of white space becomes one space. */
export function oneLine(text: string): string {
  return visible(text).split(/\s+/u).filter(Boolean).join(" ");
}

/** Write every ambiguous or invisible character in a line of a file as its code. */
export function visibleLine(line: string): string {
  return line.replace(UNUSUAL, (character: string, at: number, whole: string) => {
    const kind = kindOf(character);
    if (kind === "plain") return character;
    if (kind === "joiner" && character === "\u200d" && joinsEmoji(whole, at)) return character;
    if (kind === "selector" && selectsEmoji(whole, at, character)) return character;
    if (kind === "combining" && isAccent(whole, at, character)) return character;
    return codeOf(character);
  });
}

/** Return rows to look words of others up in: without the names that every object has, such as `constructor`. */
export function table<T>(rows: Record<string, T>): Readonly<Record<string, T>> {
  return Object.freeze(Object.assign(Object.create(null) as Record<string, T>, rows));
}

/** Return a number with its noun: `1 session`, `2 sessions`. */
export function count(number: number, noun: string, plural = `${noun}s`): string {
  return `${number} ${number === 1 ? noun : plural}`;
}

/** Return the start of an id, enough for ctl to find it, after any prefix such as `policy-`. Short names stay. */
export function short(name: string): string {
  const kept = 8;
  const dash = name.indexOf("-");
  const word = dash < 0 ? name : name.slice(0, dash);
  const rest = dash < 0 ? "" : name.slice(dash + 1);
  const prefix = dash > 0 && /^[a-zA-Z]+$/.test(word) && word.length < kept && rest.length > kept ? dash + 1 : 0;
  return oneLine(name.length > 2 * kept ? name.slice(0, prefix + kept) : name);
}
