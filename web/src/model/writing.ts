/** What a person writes: what is left of a draft, and that what they type on after their text field has gone is no key of
 *  the page. Pure.
 *
 *  A field may leave the screen without the person: its request closes, or the server goes away. The browser then sends
 *  the next letters to the page, where letters decide. */

/** A text field, as the document knows it. */
export interface Field {
  readonly isConnected: boolean;
  /** Whether Enter alone sends what is in it. */
  readonly isOneLine: boolean;
}

interface Key {
  readonly key: string;
  readonly ctrlKey: boolean;
  readonly metaKey: boolean;
  readonly altKey: boolean;
}

/** What a person types into a text field. Escape and Tab leave it, and other keys are the browser's. */
const TYPED = /^(.|Dead|Enter|Backspace|Delete|Home|End|Page(Up|Down)|Arrow(Up|Down|Left|Right))$/u;

/** Return what is left of a draft once this text of it was sent: what was written after it meanwhile. A draft that begins
 *  with something else by now is left whole. */
export function leftOf(draft: string, sent: string): string {
  const begun = draft.trimStart();
  return begun.startsWith(sent.trim()) ? begun.slice(sent.trim().length).trimStart() : draft;
}

/** Tells the keys that were meant for a text field that has gone from those of the page. */
export class Writing {
  #field: Field | null = null;

  /** Record where the person is now: in this field, or, after a press of the pointer elsewhere, in none. */
  isIn(field: Field | null): void {
    this.#field = field;
  }

  /** Record a key that reached this field, or none. Returns whether it was meant for a field that has gone: then nobody
   *  may act on it. */
  typed(event: Key, field: Field | null): boolean {
    const isChord = event.ctrlKey || event.metaKey || event.altKey;
    const hasGone = field === null && this.#field?.isConnected === false;
    if (event.key === "Escape" || event.key === "Tab") {
      this.#field = null;
      // An Escape that ends this takes no marks and no selection away.
      return hasGone && event.key === "Escape";
    }
    if (field) this.#field = event.key === "Enter" && (isChord || field.isOneLine) ? null : field;
    return hasGone && !isChord && TYPED.test(event.key);
  }
}
