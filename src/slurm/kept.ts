/** Texts and what was made of them are few, jobs are many: one copy serves all. */
const KEPT_MAX = 1_000;

/** Remembers what `make` gave for a key; forgets everything when there are too many. `make` is pure. */
export function kept<Value>(make: (key: string) => Value): (key: string) => Value {
  const values = new Map<string, Value>();
  return (key) => {
    const known = values.get(key);
    if (known !== undefined) return known;
    if (values.size >= KEPT_MAX) values.clear();
    const value = make(key);
    values.set(key, value);
    return value;
  };
}
