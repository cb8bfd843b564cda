/** Ages and instants, as people read them. Pure. */

const UNITS = [
  [86_400, "d", 3_600, "h"],
  [3_600, "h", 60, "min"],
  [60, "min", 1, "s"],
] as const;

/** Return a number of seconds in its two largest units: `2 h 5 min`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  for (const [size, unit, smaller, below] of UNITS) {
    if (whole < size) continue;
    const rest = Math.floor((whole % size) / smaller);
    return rest > 0 && size > 60
      ? `${Math.floor(whole / size)} ${unit} ${rest} ${below}`
      : `${Math.floor(whole / size)} ${unit}`;
  }
  return `${whole} s`;
}

/** Return the time since an instant in its largest unit: `5 min`. Empty for what is no instant. */
export function age(since: string, now: number): string {
  const at = Date.parse(since);
  if (Number.isNaN(at)) return "";
  return duration((now - at) / 1000)
    .split(" ")
    .slice(0, 2)
    .join(" ");
}

/** Return an instant as short as it can be told apart today: `02:13`, or `11-26 02:13` on another day. */
export function shortMoment(text: string, now: number): string {
  const [whole, today] = [moment(text), moment(new Date(now).toISOString())];
  const [day = "", time = ""] = whole.split(" ");
  const isToday = day === today.split(" ")[0] && Math.abs(now - Date.parse(text)) < 86_400_000;
  return whole && `${isToday ? "" : `${day} `}${time.slice(0, 5)}`;
}

/** Return the middle of the day of an instant, in the reader's zone: the same number during the whole day. */
export function dayOf(now: number): number {
  return new Date(now).setHours(12, 0, 0, 0);
}

/** Return the day of an instant with its year, in the reader's zone: `2026-11-26`. Empty for what is no instant. */
export function dateOf(text: string): string {
  const day = moment(text).split(" ")[0] ?? "";
  return day && `${new Date(text).getFullYear()}-${day}`;
}

/** Return an instant in the reader's zone: `11-26 02:13:55`. */
export function moment(text: string): string {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return "";
  const two = (number: number) => String(number).padStart(2, "0");
  const day = `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
