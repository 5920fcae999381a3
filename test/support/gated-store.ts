import type { Append, EventStore } from '../../src/events/store.js';

/** The same store, whose single appends wait for `gate` first: a disk that takes its time, or never answers. */
export function gatedStore(store: EventStore, gate: (append: Append) => Promise<void>): EventStore {
  const append: EventStore['append'] = async (one) => {
    await gate(one);
    return await store.append(one);
  };
  return new Proxy<EventStore>(store, {
    get: (of, name) => {
      if (name === 'append') return append;
      const member: unknown = Reflect.get(of, name, of);
      return typeof member === 'function' ? (member.bind(of) as unknown) : member;
    },
  });
}
