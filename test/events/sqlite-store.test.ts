import { afterEach, describe, expect, jest, test } from '@jest/globals';
import BetterSqlite, { type Database } from 'better-sqlite3';
import {
  copyFileSync,
  openSync,
  closeSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { openForReading, openForWriting } from '../../src/events/sqlite-schema.js';
import { SqliteEventStore } from '../../src/events/sqlite-store.js';
import { openStateDirectory } from '../../src/events/state-directory.js';
import type { EventStore } from '../../src/events/store.js';
import { created } from '../support/job-events.js';
import { jobId, taskId, token } from '../support/ids.js';
import { after, afterMounting, logChild } from '../support/log-child.js';
import { all, create, next, stream, wholeLife } from '../support/logs.js';
import { at } from '../support/job-events.js';
import { SeededRandom } from '../support/seeded-random.js';
import { temporaryDirectory } from '../support/temporary-directory.js';

// Some tests start processes, all of them wait for the disk.
jest.setTimeout(60_000);

const open: EventStore[] = [];
afterEach(async () => {
  for (const store of open.splice(0)) await store.close();
});

function storeOn(db: Database, file: string): SqliteEventStore {
  const store = new SqliteEventStore(db, { file, writer: 'writer-1', nowMs: () => 1000 });
  open.push(store);
  return store;
}

function newLog(): { readonly file: string; readonly db: Database; readonly store: SqliteEventStore } {
  const file = join(temporaryDirectory(), 'events.db');
  const db = openForWriting(file);
  return { file, db, store: storeOn(db, file) };
}

const fault = (name: string) => expect.objectContaining({ name: 'StoreError', fault: name });

/** An append of about that many bytes. */
const large = (n: number, bytes: number) => ({
  stream: stream(n),
  expectedVersion: 0,
  events: [created({ jobId: jobId(n), taskId: taskId(n), token: token(n), parameters: 'x'.repeat(bytes) })],
});

describe('a full disk', () => {
  test('fails the append that does not fit, and that one alone', async () => {
    const { file, db, store } = newLog();
    db.pragma('max_page_count = 20');
    const results = await Promise.allSettled([
      store.append(create(1)),
      store.append(large(2, 200_000)),
      store.append(create(3)),
      store.append(create(1)),
    ]);
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'rejected']);
    expect(results[1]).toMatchObject({ reason: fault('full') });
    expect(results[1]).toMatchObject({ reason: { message: expect.stringContaining(file) } });
    expect(results[1]).toMatchObject({ reason: { message: expect.stringContaining('make room') } });
    expect(results[3]).toMatchObject({ reason: { name: 'VersionConflictError' } });
    expect((await all(store)).map((record) => [record.position, record.stream])).toEqual([
      [1, stream(1)],
      [2, stream(3)],
    ]);
  });

  test('leaves nothing of the append behind, and the store goes on when there is room again', async () => {
    const { db, store } = newLog();
    db.pragma('max_page_count = 20');
    await expect(store.appendAll([create(1), large(2, 200_000)])).rejects.toEqual(fault('full'));
    await expect(store.saveCheckpoint('jobs', { position: 0, data: 'x'.repeat(200_000) })).rejects.toEqual(
      fault('full'),
    );
    expect(await all(store)).toEqual([]);
    db.pragma('max_page_count = 1000000');
    await store.appendAll([create(1), large(2, 200_000)]);
    expect(await store.lastPosition()).toBe(2);
  });

  const shell = afterMounting('mount -t tmpfs -o size=512k none "$FIRST"');
  // Where the system allows no mounts, the page limits above stand for it.
  // eslint-disable-next-line no-restricted-syntax
  (shell === null ? test.skip : test)(
    'a really full file system is said to be full, and takes appends again',
    async () => {
      const child = logChild(
        `import { rmSync, writeFileSync } from 'node:fs';
       const [directory, appendText] = args;
       const { events } = JSON.parse(appendText);
       const { store } = await open(directory);
       const add = (n) => store.append({ stream: 'backend/b' + n, expectedVersion: 0, events });
       await add(0);
       try { writeFileSync(directory + '/filler', Buffer.alloc(1e6)); } catch (error) { say(error.code); }
       const failed = [];
       let n = 1;
       for (; n < 200; n += 1) await add(n).catch((error) => failed.push(told(error)));
       const before = await store.lastPosition();
       rmSync(directory + '/filler');
       await add(n);
       say({ failed: failed.length, first: failed[0], before, after: await store.lastPosition(), problems: await store.checkIntegrity() });`,
        [
          temporaryDirectory(),
          JSON.stringify({ events: [{ type: 'oddity.seen', v: 1, atMs: 0, text: 'x'.repeat(3000) }] }),
        ],
        shell ?? [],
      );
      expect(await child.next()).toBe('ENOSPC');
      const said = await child.next();
      expect(said).toMatchObject({ first: { name: 'StoreError', fault: 'full' }, problems: [] });
      const { failed, before, after: last } = said as { failed: number; before: number; after: number };
      expect(failed).toBeGreaterThan(0);
      expect(before).toBe(1 + 199 - failed);
      expect(last).toBe(before + 1);
    },
  );
});

describe('a failed write', () => {
  test('INV-12 after an I/O error nothing more is written until the log is opened again, which shows what was confirmed', async () => {
    const directory = temporaryDirectory();
    // A file may not grow beyond 400 blocks: the system answers EFBIG, which SQLite calls an I/O error.
    const child = logChild(
      `const [directory] = args;
       const { store } = await open(directory);
       const add = (n) => store.append({ stream: 'backend/b' + n, expectedVersion: 0,
         events: [{ type: 'oddity.seen', v: 1, atMs: 0, text: 'x'.repeat(3000) }] });
       let n = 0;
       const first = await (async () => { for (;; n += 1) await add(n); })().catch(told);
       const later = await Promise.allSettled([add(1000), add(1001), store.saveCheckpoint('jobs', { position: 1, data: 1 })]);
       say({ confirmed: n, first, later: later.map(({ reason }) => told(reason)), readable: await store.lastPosition() });
       process.kill(process.pid, 'SIGKILL');`,
      [directory],
      after('ulimit -f 400'),
    );
    const said = (await child.next()) as { confirmed: number; readable: number; first: object; later: object[] };
    expect(said.confirmed).toBeGreaterThan(10);
    expect(said.first).toMatchObject({ name: 'StoreError', fault: 'io' });
    expect(said.first).toMatchObject({ message: expect.stringContaining(join(directory, 'events.db')) });
    expect(said.later).toHaveLength(3);
    for (const refusal of said.later)
      expect(refusal).toMatchObject({ fault: 'io', message: expect.stringMatching(/no more writes.*restart/) });
    expect(said.readable).toBe(said.confirmed);

    await child.ended;
    const state = await openStateDirectory(directory, { mode: 'write', writer: 'w', nowMs: () => 0 });
    open.push(state.store);
    expect(await state.store.lastPosition()).toBe(said.confirmed);
    expect(await state.store.checkIntegrity()).toEqual([]);
    await state.close();
  });

  test('a log that another connection is writing to is locked, and takes appends afterwards', async () => {
    const { file, db, store } = newLog();
    db.pragma('busy_timeout = 0');
    const other = new BetterSqlite(file);
    other.exec('BEGIN IMMEDIATE');
    await expect(store.append(create(1))).rejects.toEqual(fault('locked'));
    other.exec('ROLLBACK');
    other.close();
    await store.append(create(1));
    expect(await store.lastPosition()).toBe(1);
  });

  test('a log opened for reading refuses appends, and says that it is read-only', async () => {
    const { file, store } = newLog();
    await store.append(wholeLife(1));
    const reader = storeOn(openForReading(file), file);
    await expect(reader.append(create(2))).rejects.toEqual(fault('readOnly'));
    expect(await all(reader)).toHaveLength(9);
  });
});

describe('a torn end', () => {
  test('INV-12 wherever the write-ahead log is cut, the log holds every commit before the cut, whole, and no part of another', async () => {
    const { file, store } = newLog();
    const wal = `${file}-wal`;
    /** By number of events: how long the file was when they were confirmed. */
    const confirmed: { readonly events: number; readonly bytes: number }[] = [];
    for (let n = 1; n <= 12; n += 1) {
      await store.appendAll(n % 3 === 0 ? [wholeLife(n), large(n + 100, 9000), create(n + 200)] : [create(n)]);
      confirmed.push({ events: await store.lastPosition(), bytes: statSync(wal).size });
    }
    const whole = await all(store);
    const end = statSync(wal).size;
    const random = new SeededRandom(7);
    const cuts = [0, 1, 31, 32, 33, end - 1, end];
    for (const { bytes } of confirmed) cuts.push(bytes - 1, bytes, bytes + 24 + 4096);
    for (let n = 0; n < 20; n += 1) cuts.push(random.int(0, end));

    const copy = join(temporaryDirectory(), 'events.db');
    for (const cut of cuts) {
      copyFileSync(file, copy);
      copyFileSync(wal, `${copy}-wal`);
      truncateSync(`${copy}-wal`, cut);
      // What a disk leaves behind a torn write may be anything.
      if (cut % 2 === 1) writeFileSync(`${copy}-wal`, random.bytes(5000), { flag: 'a' });
      const expected = confirmed.findLast(({ bytes }) => bytes <= cut)?.events ?? 0;
      const recovered = storeOn(openForWriting(copy), copy);
      expect([cut, await all(recovered)]).toEqual([cut, whole.slice(0, expected)]);
      expect(await recovered.checkIntegrity()).toEqual([]);
      await recovered.append(create(999));
      expect(await recovered.lastPosition()).toBe(expected + 1);
      await recovered.close();
    }
  });
});

describe('damage', () => {
  async function closedLog(): Promise<string> {
    const { file, store } = newLog();
    for (let n = 1; n <= 60; n += 1) await store.append(wholeLife(n));
    await store.close();
    return file;
  }

  function overwrite(file: string, offset: number, bytes: Uint8Array): void {
    const fd = openSync(file, 'r+');
    writeSync(fd, bytes, 0, bytes.length, offset);
    closeSync(fd);
  }

  const garbage = (length: number) => new Uint8Array(length).fill(0xa5);

  test('a damaged page is an error that names the file, wherever it is met, and is never skipped', async () => {
    const file = await closedLog();
    const pages = statSync(file).size / 4096;
    expect(pages).toBeGreaterThan(20);
    overwrite(file, 4096 * Math.floor(pages / 2), garbage(4096));
    const store = storeOn(openForWriting(file), file);
    const reads = await Promise.allSettled([
      all(store),
      ...Array.from({ length: 60 }, (_, index) => store.readStream(stream(index + 1))),
    ]);
    const failures = reads.flatMap((read) => (read.status === 'rejected' ? [read.reason as unknown] : []));
    expect(reads[0]).toMatchObject({ status: 'rejected' });
    for (const failure of failures)
      expect(failure).toMatchObject({ name: 'StoreError', fault: 'corrupt', message: expect.stringContaining(file) });
    expect((await store.checkIntegrity()).length).toBeGreaterThan(0);
  });

  test.each([
    ['its beginning', (file: string) => overwrite(file, 0, garbage(100))],
    ['all of it', (file: string) => writeFileSync(file, 'not a log at all, but long enough to look at '.repeat(100))],
    ['its schema', (file: string) => overwrite(file, 100, garbage(3996))],
  ])('a log that has lost %s is not opened', async (_what, damage) => {
    const file = await closedLog();
    damage(file);
    const before = readFileSync(file);
    for (const openIt of [openForWriting, openForReading])
      expect(() => openIt(file)).toThrow(
        expect.objectContaining({ fault: 'corrupt', message: expect.stringContaining(file) }),
      );
    expect(readFileSync(file).equals(before)).toBe(true);
  });

  test('another SQLite file is not taken for a log, nor changed', () => {
    const file = join(temporaryDirectory(), 'events.db');
    const other = new BetterSqlite(file);
    other.exec('create table people(name)');
    other.close();
    const before = readFileSync(file);
    expect(() => openForWriting(file)).toThrow(/no event log/);
    expect(readFileSync(file).equals(before)).toBe(true);
  });

  test('a file of a newer release is refused, and says so', async () => {
    const file = await closedLog();
    const db = new BetterSqlite(file);
    db.pragma('user_version = 99');
    db.close();
    expect(() => openForWriting(file)).toThrow(expect.objectContaining({ fault: 'newerVersion' }));
    expect(() => openForReading(file)).toThrow(/99/);
  });

  test.each([
    ['is no JSON', '{"type":"job.obs', 'corrupt'],
    ['is of a version that never was', '{"type":"submission.started","v":0,"atMs":1}', 'corrupt'],
    ['is no event', '[1]', 'corrupt'],
    ['is of a type that this release does not know', '{"type":"job.teleported","v":1,"atMs":1}', 'newerVersion'],
    ['is of a newer version', '{"type":"submission.started","v":2,"atMs":1,"attempt":1}', 'newerVersion'],
  ])('INV-12 an event that %s is an error at its position, never left out', async (_what, data, name) => {
    const { file, db, store } = newLog();
    await store.append(wholeLife(1));
    db.prepare('update events set data = ? where position = 2').run(data);
    const told = expect.objectContaining({ fault: name, message: expect.stringContaining(`position 2 of ${file}`) });
    await expect(all(store)).rejects.toEqual(told);
    await expect(store.readStream(stream(1))).rejects.toEqual(told);
    expect(await all(store, 2)).toHaveLength(7);
    expect(await store.checkIntegrity()).toContainEqual(expect.stringContaining('position 2 of'));
  });

  test('the integrity check finds gaps, misplaced events and fields that reading trusts', async () => {
    const { db, store } = newLog();
    await store.append(wholeLife(1));
    await store.append(next(2, 0));
    await store.append(create(2));
    expect(await store.checkIntegrity()).toEqual([]);
    db.prepare('delete from events where position = 4').run();
    db.prepare(`update events set data = '{"type":"submission.started","v":1,"atMs":1}' where position = 2`).run();
    db.prepare(`update events set data = ? where position = 10`).run(
      JSON.stringify({ type: 'outage.ended', v: 1, atMs: 1, part: 'queue' }),
    );
    const problems = (await store.checkIntegrity()).join('\n');
    expect(problems).toContain('positions: 9 events, but the last one is at position 10');
    expect(problems).toContain(`versions: ${stream(1)} has 8 events with versions from 1 to 9`);
    expect(problems).toContain('position 2 of');
    expect(problems).toContain('position 10 of');
  });
});

test('INV-12 the file is synced at every commit, and tells a person what it is and what its events are', async () => {
  const { file, db, store } = newLog();
  await store.append(create(1));
  await store.append(next(1, 1, at(1).started()));
  expect(db.prepare('select type, v from log').raw().all()).toEqual([
    ['job.created', 1],
    ['submission.started', 1],
  ]);
  expect(db.pragma('journal_mode', { simple: true })).toBe('wal');
  // INV-12: every commit is synced (2 is FULL).
  expect(db.pragma('synchronous', { simple: true })).toBe(2);
  await store.close();
  expect(readFileSync(file).subarray(68, 72).toString()).toBe('OCLG');
  expect(statSync(file).mode & 0o777).toBe(0o600);
});
