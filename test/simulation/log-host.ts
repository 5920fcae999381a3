import { MemoryEventStore } from '../../src/events/memory-store.js';
import { StoreError, type EventStore } from '../../src/events/store.js';
import { appendAnyway, type Break } from './breaks.js';
import type { Chance } from './chance.js';
import type { Checker, Incarnation } from './checker.js';
import type { Swarm } from './faults.js';
import type { Life } from './life.js';
import type { HostClock, VirtualTime } from './virtual-time.js';

interface LogParts {
  readonly time: VirtualTime;
  readonly clock: HostClock;
  readonly chance: Chance;
  readonly swarm: Swarm;
  readonly checker: Checker;
  readonly broken: Break | null;
}

const SLOW_MAX_MS = 1_500;

/** A log on a disk that outlives the processes which write it. */
export class LogHost {
  readonly name: string;
  readonly store: MemoryEventStore;
  readonly #parts: LogParts;
  #underWay = 0;

  constructor(name: string, parts: LogParts) {
    this.name = name;
    this.#parts = parts;
    this.store = new MemoryEventStore({ writer: name, nowMs: () => parts.clock.nowMs() });
  }

  /** Nothing is being written, so what is in the log is also in its writer's memory. */
  get isQuiet(): boolean {
    return this.#underWay === 0;
  }

  /** The log as one process sees it. A process that dies in an append leaves all of it or nothing. */
  openFor(life: Life, incarnation: Incarnation | null): EventStore {
    const { time, chance, swarm, checker, broken } = this.#parts;
    const write: EventStore['appendAll'] = async (appends) => {
      const recorded =
        broken === 'version'
          ? await appendAnyway((all) => this.store.appendAll(all), appends)
          : await this.store.appendAll(appends);
      for (const one of recorded) checker.recorded(this.name, one, incarnation);
      return recorded;
    };
    const slowly: EventStore['appendAll'] = async (appends) => {
      if (swarm.strikes('diskFull')) throw new StoreError('full', `${this.name}: no space left on the simulated disk`);
      if (!swarm.strikes('slowDisk')) return write(appends);
      const ms = chance.int(1, SLOW_MAX_MS);
      if (chance.chance(0.5)) {
        const recorded = await write(appends);
        await time.wait(ms);
        return recorded;
      }
      await time.wait(ms);
      // The process died before the write was durable: the torn end of the log is cut off.
      return life.isAlive ? write(appends) : new Promise(() => undefined);
    };
    const appendAll: EventStore['appendAll'] = async (appends) => {
      this.#underWay += 1;
      const over = (): void => {
        this.#underWay -= 1;
      };
      let isOver = false;
      const once = (): void => {
        if (!isOver) over();
        isOver = true;
      };
      life.onDeath(once);
      try {
        return await life.call('append', () => slowly(appends));
      } finally {
        once();
      }
    };
    return {
      append: (append) => appendAll([append]),
      appendAll,
      readStream: (stream, after) => life.call('read', () => this.store.readStream(stream, after)),
      readAll: (after) => this.#readAll(life, after),
      lastPosition: () => life.call('read', () => this.store.lastPosition()),
      // What a process saves that does not know of another writer is wrong whatever the version check does.
      saveCheckpoint: (name, checkpoint) =>
        life.call('checkpoint', () =>
          swarm.has('twoWriters') ? Promise.resolve() : this.store.saveCheckpoint(name, checkpoint),
        ),
      loadCheckpoint: (name) => life.call('read', () => this.store.loadCheckpoint(name)),
      close: () => Promise.resolve(),
    };
  }

  async *#readAll(life: Life, after?: number): ReturnType<EventStore['readAll']> {
    await life.call('read', () => Promise.resolve());
    yield* this.store.readAll(after);
  }
}
