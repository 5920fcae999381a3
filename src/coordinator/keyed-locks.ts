/** Commands on one task run one after the other; commands on different tasks do not wait for each other. */
export class KeyedLocks<K extends string> {
  readonly #tails = new Map<K, Promise<void>>();

  /** Resolves when all keys are held; call what it gives to let go. Keys are taken in one order: no deadlock. */
  async acquire(keys: readonly K[]): Promise<() => void> {
    const order = keys.length > 1 ? [...new Set(keys)].sort() : keys;
    const releases: (() => void)[] = [];
    for (const key of order) {
      const before = this.#tails.get(key);
      let letGo: () => void = () => undefined;
      const mine = new Promise<void>((resolve) => {
        letGo = resolve;
      });
      this.#tails.set(key, mine);
      releases.push(() => {
        if (this.#tails.get(key) === mine) this.#tails.delete(key);
        letGo();
      });
      if (before !== undefined) await before;
    }
    return () => {
      for (const release of releases) release();
    };
  }
}
