import type { Database, Statement } from 'better-sqlite3';
import { StoreError, VersionConflictError, type StoreFault } from './errors.js';
import { asStoreError, isStorageFault, storeError } from './sqlite-faults.js';

interface Waiting {
  readonly write: () => void;
  /** Tells the writer what `write` came to. */
  readonly settle: () => void;
  readonly fail: (error: unknown) => void;
}

/** After these a transaction is known to be undone; the store can go on. */
const HARMLESS: readonly StoreFault[] = ['full', 'locked', 'readOnly', 'closed'];

/**
 * Writes that come in during one turn of the event loop share one transaction, and so one sync of the disk. Each promise
 * settles after the commit. What one write throws, fails that one alone; a failed commit fails all of its group.
 *
 * No savepoints: they cost more than the rows. A write that finds a version conflict must not have written anything
 * yet, so it is left out of its group as it is; when a write fails in any other way, the group is rolled back and each
 * of its writes gets a transaction of its own.
 *
 * After a fault that leaves open what has reached the disk (a failed sync, above all) every later write is refused
 * until the log is opened again: a retried sync may report success for pages that the kernel has dropped.
 */
export class GroupCommit {
  readonly #db: Database;
  readonly #file: string;
  readonly #afterThisTurn: (then: () => void) => void;
  readonly #onBroken: (error: StoreError) => void;
  readonly #begin: Statement;
  readonly #commit: Statement;
  readonly #rollback: Statement;
  #queue: Waiting[] = [];
  #broken: StoreError | null = null;

  /** `onBroken`: told once, when no more writes are taken. */
  constructor(
    db: Database,
    file: string,
    afterThisTurn: (then: () => void) => void,
    onBroken: (error: StoreError) => void,
  ) {
    this.#db = db;
    this.#file = file;
    this.#afterThisTurn = afterThisTurn;
    this.#onBroken = onBroken;
    this.#begin = db.prepare('BEGIN IMMEDIATE');
    this.#commit = db.prepare('COMMIT');
    this.#rollback = db.prepare('ROLLBACK');
  }

  /**
   * Runs `write` inside the next transaction. Resolves with what it returned, after the commit. Rejects with
   * `VersionConflictError`, `StoreError`, or what else `write` threw.
   */
  submit<T>(write: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      let settle = (): void => undefined;
      this.#queue.push({
        write: () => {
          try {
            const value = write();
            settle = () => resolve(value);
          } catch (cause) {
            if (!(cause instanceof VersionConflictError)) throw cause;
            settle = () => reject(cause);
          }
        },
        settle: () => settle(),
        fail: reject,
      });
      if (this.#queue.length === 1) this.#afterThisTurn(() => this.flush());
    });
  }

  /** Commits what is waiting, now. */
  flush(): void {
    const group = this.#queue;
    this.#queue = [];
    if (group.length > 0) this.#run(group);
  }

  #run(group: readonly Waiting[]): void {
    try {
      if (this.#broken !== null) throw this.#broken;
      if (!this.#db.open) throw storeError('closed', this.#file, 'write to', 'the log is not open');
      this.#begin.run();
    } catch (cause) {
      this.#fail(group, cause);
      return;
    }
    try {
      for (const each of group) each.write();
    } catch (cause) {
      this.#undo();
      if (group.length === 1 || this.#breaks(cause)) this.#fail(group, cause);
      else for (const each of group) this.#run([each]);
      return;
    }
    try {
      this.#commit.run();
    } catch (cause) {
      this.#undo();
      this.#fail(group, cause);
      return;
    }
    for (const each of group) each.settle();
  }

  #fail(group: readonly Waiting[], cause: unknown): void {
    const error = isStorageFault(cause) ? asStoreError(cause, this.#file, 'write to') : cause;
    if (this.#broken === null && this.#breaks(cause)) {
      this.#broken = new StoreError(
        'io',
        `no more writes to ${this.#file}: an earlier one failed, and what of it is on the disk shows only when the log is opened again: restart. It was: ${error instanceof Error ? error.message : String(error)}`,
        { cause },
      );
      this.#onBroken(this.#broken);
    }
    for (const each of group) each.fail(error);
  }

  #breaks(cause: unknown): boolean {
    return isStorageFault(cause) && !HARMLESS.includes(asStoreError(cause, this.#file, 'write to').fault);
  }

  /** SQLite has already rolled back after some faults (sqlite.org/lang_transaction.html, "Response To Errors"). */
  #undo(): void {
    if (this.#db.inTransaction) this.#rollback.run();
  }
}
